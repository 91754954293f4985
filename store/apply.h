/* The writer's side of a commit: facts become rows, seconds become ticks. Runs on the writer
 * thread only. After a rolled-back transaction the state is loaded anew from the file. */
#ifndef ROLLTOP_STORE_APPLY_H
#define ROLLTOP_STORE_APPLY_H

#include "store/blob.h"
#include "store/fact.h"
#include "store/rollup.h"
#include "store/tick.h"
#include "store/words.h"

typedef struct Writer {
    Db db;
    Packer *packer;
    Words words;
    AccSet engines;
    FlightList flights;    /* open attempts, in no order */
    uint32_t *places;      /* of a sample in flights, plus one; by hash */
    size_t place_capacity; /* power of two */
    Rollup rollup;         /* the open minute */
    double tokens;         /* of all engines */
    int64_t second;        /* the open one; -1: none yet */
    int64_t key_bucket;    /* ten-second bucket of the newest key tick; -1 none */
    int64_t last_us;       /* newest time of any fact */
    int behind;            /* probes in a row that are far older than it */
    int64_t resumed_us;    /* what it was when the file was opened */
    bool session_seen;     /* since the file was opened */
    int64_t probe, progress, metric, child_line, attempt; /* newest rows */
} Writer;

/* Loads the state from writer->db, which is open and prepared. */
Err writer_load(Writer *writer, Fault *fault);
void writer_free(Writer *writer); /* closes the database too */
/* One fact into the open transaction; an SQLite code. */
int writer_apply(Writer *writer, FactKind kind, const void *fact);

/* apply_people.c */
int apply_command(Writer *writer, const CommandFact *fact);
int apply_incident(Writer *writer, const IncidentFact *fact);
int apply_alert_rule(Writer *writer, const AlertRuleFact *fact);
int apply_event(Writer *writer, const EventFact *fact);

/* apply_sample.c */
int apply_group(Writer *writer, const GroupFact *fact);
int apply_sample_start(Writer *writer, const SampleStartFact *fact);
int apply_sample_progress(Writer *writer, const SampleProgressFact *fact);
int apply_sample_end(Writer *writer, const SampleEndFact *fact);
int apply_sample_reward(Writer *writer, const SampleRewardFact *fact);
void flights_index(Writer *writer); /* after flights was loaded */
/* Attempts that the last life of the core left open are lost. */
int apply_orphans(Writer *writer);

#endif
