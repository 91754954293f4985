/* What people and rules say: commands, alerts and their rules, events. */
#include "store/apply.h"

#define STATEMENT(sql) db_stmt(&w->db, sql, NULL)

int apply_command(Writer *w, const CommandFact *f)
{
    static const char sql[] =
        "INSERT INTO command VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->command);
    bind_i64(&b, f->t_us);
    bind_text(&b, f->who);
    bind_text(&b, f->what);
    bind_text(&b, f->target);
    bind_text(&b, f->reason);
    bind_text(&b, f->state);
    bind_text(&b, f->answer);
    return bind_run(&b);
}

/* The alert's own row is of its worst time; what was known before stands here. */
static int put_change(Writer *w, const IncidentFact *f)
{
    Bind b = {STATEMENT("INSERT INTO incident_change VALUES (NULL, ?, ?, ?, ?)"), 0};
    bind_i64(&b, f->incident);
    bind_i64(&b, f->t_us > 0 ? f->t_us : w->last_us);
    bind_i64(&b, f->severity);
    bind_text(&b, f->evidence);
    return bind_run(&b);
}

int apply_incident(Writer *w, const IncidentFact *f)
{
    static const char sql[] =
        "INSERT INTO incident VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (incident_id)"
        " DO UPDATE SET ended_us = excluded.ended_us, severity = excluded.severity,"
        " evidence = coalesce(excluded.evidence, evidence),"
        " next_key = coalesce(excluded.next_key, next_key)";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->incident);
    bind_i64(&b, f->onset_us);
    bind_some(&b, f->ended_us);
    bind_text(&b, f->class_name);
    bind_i64(&b, f->severity);
    bind_some(&b, f->engine);
    bind_text(&b, f->evidence);
    bind_text(&b, f->next_key);
    int rc = bind_run(&b);
    return rc == SQLITE_OK && f->ended_us == 0 ? put_change(w, f) : rc;
}

int apply_alert_rule(Writer *w, const AlertRuleFact *f)
{
    Bind b = {STATEMENT("INSERT INTO alert_rule VALUES (NULL, ?, ?, ?, ?)"), 0};
    bind_i64(&b, f->t_us);
    bind_text(&b, f->class_name);
    bind_text(&b, f->words);
    bind_i64(&b, f->changed);
    return bind_run(&b);
}

int apply_event(Writer *w, const EventFact *f)
{
    static const char sql[] = "INSERT INTO event VALUES (NULL, ?, ?, ?, ?, ?)";
    Bind b = {STATEMENT(sql), 0};
    bind_i64(&b, f->t_us);
    bind_i64(&b, f->severity);
    bind_text(&b, f->source);
    bind_some(&b, f->engine);
    bind_text(&b, f->text);
    return bind_run(&b);
}
