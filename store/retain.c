#include "store/retain.h"

#include <stdlib.h>

enum { LOOK_US = 1000000, COMMIT_ROWS = 4000, COMMIT_SLICES = 16 };
#define WARN_US INT64_C(3600000000)

Err retain_load(Retain *retain, Db *db, Fault *fault)
{
    return trim_resume(db, &retain->work, fault);
}

/* The newest ten minutes alone are larger than the bound: said, not passed over. */
static int warn_size(Retain *r, Writer *w, const TrimState *state)
{
    if (r->limits.max_bytes == 0 || state->bytes <= r->limits.max_bytes ||
        (r->warned_us != 0 && llabs(w->last_us - r->warned_us) < WARN_US)) {
        return SQLITE_OK;
    }
    r->warned_us = w->last_us;
    char text[200];
    (void)str_format(text, sizeof text,
                     "the log holds %lld MiB, more than --log-max-size allows (%lld MiB): what is "
                     "always kept and the newest ten minutes are larger",
                     (long long)(state->bytes >> 20), (long long)(r->limits.max_bytes >> 20));
    EventFact event = {.t_us = w->last_us, .severity = SEVERITY_WARN, .source = "core",
                       .text = text};
    return writer_apply(w, FACT_EVENT, &event);
}

int retain_slice(Retain *r, Writer *w)
{
    Db *db = &w->db;
    int64_t rows = r->work.rows;
    int rc = SQLITE_OK;
    for (int i = 0; i < COMMIT_SLICES && r->work.trim_id != 0 && rc == SQLITE_OK &&
                    r->work.rows - rows < COMMIT_ROWS; i++) {
        rc = trim_slice(db, &r->work);
    }
    if (r->work.trim_id != 0 || rc != SQLITE_OK) {
        return rc;
    }
    bool bound = r->limits.keep_us > 0 || r->limits.max_bytes > 0;
    if (!bound || llabs(w->last_us - r->looked_us) < LOOK_US) {
        return SQLITE_OK;
    }
    r->looked_us = w->last_us;
    TrimState state;
    int64_t before_us = 0;
    const char *why = NULL;
    Err err = trim_state(db, w->last_us, &state, NULL);
    if (err == ERR_OK && trim_due(&r->limits, &state, &before_us, &why)) {
        err = trim_begin(db, before_us, w->last_us, why, &r->work, NULL);
    } else if (err == ERR_OK) {
        return warn_size(r, w, &state);
    }
    return err == ERR_OK ? SQLITE_OK : sqlite3_errcode(db->handle);
}
