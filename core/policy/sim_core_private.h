/* The simulated core's own memory, shared by sim_core.c (its life, looks and time) and sim_jobs.c
 * (its transactions). Nobody else looks in. */
#ifndef ROLLTOP_POLICY_SIM_CORE_PRIVATE_H
#define ROLLTOP_POLICY_SIM_CORE_PRIVATE_H

#include "core/policy/canary_window.h"
#include "core/policy/sim_world.h"
#include "core/policy/txn.h"

enum { SIM_FENCES = 8 };
#define SIM_BRING_AGAIN_US INT64_C(5000000)

typedef struct Seat {
    int64_t incarnation, verified, due_us, doubt_us;
    int64_t follows; /* what its own copy is proved to hold; -1 not known */
    int failures, odd, copies_odd; /* copies_odd: updates in a row whose copy led elsewhere */
    bool bring, admitted;
} Seat;

typedef struct Job {
    Txn *txn;
    int64_t id, from, to, faults;
    int engine; /* the fenced one; -1: the fleet */
    uint32_t decide_seq;
    size_t decide_at; /* entries written when the decision was: durable once all of them are */
    bool over, rolled_back, decided;
    TxnMember *members;
    bool *out;
    int count;
} Job;

struct SimCore {
    Seat seats[SIM_ENGINES_MAX];
    Job *main, *fences[SIM_FENCES];
    int64_t committed, next_txn, next_version, start_us, update_us;
    int64_t published; /* the newest version that this life of the core published */
    int begun; /* updates of the episode, over all lives */
    CanaryWindow window;
    bool scoring[SIM_ENGINES_MAX]; /* its canary may be running, and what it was given with it */
    int64_t window_due_us;         /* all of them have been given up by then */
    bool gate_open, settle, pumping;
};

/* sim_jobs.c */
void sim_job_free(Job *job);
/* A transaction to version `to`, of the fleet or (`only` >= 0) a fence of one engine; begun. */
Job *sim_job_start(SimWorld *world, int64_t to, int only);
void sim_job_pump(SimWorld *world, Job *job); /* carries out what it wants */
void sim_job_lost(SimWorld *world, Job *job, int engine, int64_t incarnation); /* job may be NULL */
void sim_job_synced(SimWorld *world, Job *job); /* its decision may be durable now */
bool sim_member_now(const SimWorld *world, int engine); /* could take part in a transaction */
bool sim_left_out(const SimWorld *world, int engine);   /* … but others go on without it */
void sim_scored(SimWorld *world, int engine); /* its canary runs no more */
void sim_seat_out(SimWorld *world, int engine);         /* it gets no generation any more */

#endif
