#include "store/apply.h"

#include "core/base/hash.h"

#include <stdlib.h>
#include <string.h>

int apply_group(Writer *w, const GroupFact *f)
{
    static const char sql[] =
        "INSERT OR REPLACE INTO sample_group VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)";
    Bind b = {db_stmt(&w->db, sql, NULL), 0};
    bind_i64(&b, f->group);
    bind_i64(&b, f->step);
    bind_i64(&b, f->t_us);
    bind_i64(&b, f->eval);
    bind_known(&b, f->prompt_index);
    bind_i64(&b, f->want);
    Packed prompt = pack_bytes(w->packer, 0, f->prompt.p, f->prompt.n);
    Packed label = pack_bytes(w->packer, 1, f->label.p, f->label.n);
    Packed ids = pack_bytes(w->packer, 2, f->prompt_ids, f->prompt_count * sizeof(int32_t));
    bind_blob(&b, prompt.p, prompt.n);
    bind_blob(&b, label.p, label.n);
    bind_blob(&b, ids.p, ids.n);
    return bind_run(&b);
}

/* ---- open attempts by sample: open addressing over the list's places ---- */

static size_t place_of(const Writer *w, int64_t sample_id)
{
    size_t mask = w->place_capacity - 1;
    size_t at = (size_t)hash64(&sample_id, sizeof sample_id, 0) & mask;
    while (w->places[at] != 0 && w->flights.items[w->places[at] - 1].sample_id != sample_id) {
        at = (at + 1) & mask;
    }
    return at;
}

void flights_index(Writer *w)
{
    size_t wanted = 64;
    while (wanted < w->flights.count * 2 + 2) {
        wanted *= 2;
    }
    free(w->places);
    w->places = xcalloc(wanted, sizeof *w->places);
    w->place_capacity = wanted;
    for (size_t i = 0; i < w->flights.count; i++) {
        w->places[place_of(w, w->flights.items[i].sample_id)] = (uint32_t)i + 1;
    }
}

static Flight *flight_of_sample(Writer *w, int64_t sample_id)
{
    uint32_t place = w->places[place_of(w, sample_id)];
    return place == 0 ? NULL : &w->flights.items[place - 1];
}

/* Closes the hole in the table: what was pushed on by collisions moves back. */
static void place_clear(Writer *w, size_t at)
{
    size_t mask = w->place_capacity - 1;
    w->places[at] = 0;
    for (size_t i = (at + 1) & mask; w->places[i] != 0; i = (i + 1) & mask) {
        uint32_t place = w->places[i];
        w->places[i] = 0;
        w->places[place_of(w, w->flights.items[place - 1].sample_id)] = place;
    }
}

/* The last one takes the free place: the writer needs no order. */
static void flight_remove(Writer *w, Flight *flight)
{
    FlightList *list = &w->flights;
    Flight *last = &list->items[list->count - 1];
    uint32_t place = (uint32_t)(flight - list->items) + 1;
    place_clear(w, place_of(w, flight->sample_id));
    if (flight != last) {
        w->places[place_of(w, last->sample_id)] = place;
        *flight = *last;
    }
    list->count--;
}

static void flight_put(Writer *w, Flight flight)
{
    flight_add(&w->flights, flight);
    if ((w->flights.count + 1) * 2 > w->place_capacity) {
        flights_index(w);
    } else {
        w->places[place_of(w, flight.sample_id)] = (uint32_t)w->flights.count;
    }
}

static int close_lost(Writer *w, const Flight *flight, int64_t t_us, const char *reason)
{
    static const char sql[] = "UPDATE attempt SET ended_us = max(started_us, ?), fate = ?,"
                              " reason = ?, tokens = ? WHERE attempt_id = ?";
    Bind b = {db_stmt(&w->db, sql, NULL), 0};
    bind_i64(&b, t_us);
    bind_i64(&b, FATE_LOST);
    bind_text(&b, reason);
    bind_i64(&b, flight->tokens);
    bind_i64(&b, flight->attempt_id);
    return bind_run(&b);
}

int apply_orphans(Writer *w)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; i < w->flights.count && rc == SQLITE_OK; i++) {
        rc = close_lost(w, &w->flights.items[i], w->resumed_us, "the core ended");
    }
    w->flights.count = 0;
    flights_index(w);
    return rc;
}

int apply_sample_start(Writer *w, const SampleStartFact *f)
{
    static const char sql[] =
        "INSERT INTO attempt (started_us, step, group_id, sample_id, try, eval, engine, fate)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
    Flight *old = flight_of_sample(w, f->sample);
    int rc = SQLITE_OK;
    if (old != NULL) {
        rc = close_lost(w, old, f->t_us, "another attempt began before this one ended");
        flight_remove(w, old);
    }
    if (rc != SQLITE_OK) {
        return rc;
    }
    Bind b = {db_stmt(&w->db, sql, NULL), 0};
    bind_i64(&b, f->t_us);
    bind_i64(&b, f->step);
    bind_i64(&b, f->group);
    bind_i64(&b, f->sample);
    bind_i64(&b, f->attempt);
    bind_i64(&b, f->eval);
    bind_some(&b, f->engine);
    bind_i64(&b, FATE_OPEN);
    rc = bind_run(&b);
    if (rc == SQLITE_OK) {
        w->attempt = sqlite3_last_insert_rowid(w->db.handle);
        flight_put(w, (Flight){.attempt_id = w->attempt,
                               .sample_id = f->sample,
                               .group_id = f->group,
                               .step = f->step,
                               .started_us = f->t_us,
                               .engine = f->engine,
                               .attempt = f->attempt,
                               .eval = f->eval});
    }
    return rc;
}

int apply_sample_progress(Writer *w, const SampleProgressFact *f)
{
    static const char sql[] =
        "INSERT INTO progress (t_us, attempt_id, engine, tokens) VALUES (?, ?, ?, ?)";
    Flight *flight = flight_of_sample(w, f->sample);
    Bind b = {db_stmt(&w->db, sql, NULL), 0};
    bind_i64(&b, f->t_us);
    bind_some(&b, flight != NULL ? flight->attempt_id : 0);
    bind_some(&b, f->engine);
    bind_i64(&b, f->tokens);
    int rc = bind_run(&b);
    if (rc != SQLITE_OK) {
        return rc;
    }
    w->progress = sqlite3_last_insert_rowid(w->db.handle);
    if (flight == NULL) {
        return SQLITE_OK;
    }
    flight->tokens = f->tokens;
    flight->progress_us = f->t_us;
    if (f->engine != 0 && flight->engine == 0) { /* a frontend chose it: now it is known */
        flight->engine = f->engine;
        Bind u = {db_stmt(&w->db, "UPDATE attempt SET engine = ? WHERE attempt_id = ?", NULL), 0};
        bind_i64(&u, f->engine);
        bind_i64(&u, flight->attempt_id);
        rc = bind_run(&u);
    }
    return rc;
}

/* The distinct policy versions of the spans in order of appearance: "3" or "2,3". */
static void versions_text(const SampleEndFact *f, Text *out)
{
    for (size_t i = 0; i < f->span_count && f->spans != NULL; i++) {
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++) {
            seen = f->spans[j].policy_version == f->spans[i].policy_version;
        }
        if (!seen) {
            text_addf(out, out->n == 0 ? "%lld" : ",%lld",
                      (long long)f->spans[i].policy_version);
        }
    }
}

static int insert_data(Writer *w, int64_t attempt_id, const SampleEndFact *f)
{
    static const char sql[] = "INSERT OR REPLACE INTO attempt_data VALUES (?, ?, ?, ?, ?)";
    if (f->tokens == NULL && f->spans == NULL && f->text.p == NULL) {
        return SQLITE_OK;
    }
    Packed tokens = pack_bytes(w->packer, 0, f->tokens, f->token_count * sizeof(int32_t));
    Packed logprobs = pack_bytes(w->packer, 1, f->logprobs, f->token_count * sizeof(float));
    Packed spans = pack_bytes(w->packer, 2, f->spans, f->span_count * sizeof(SampleSpan));
    Packed text = pack_bytes(w->packer, 3, f->text.p, f->text.n);
    Bind b = {db_stmt(&w->db, sql, NULL), 0};
    bind_i64(&b, attempt_id);
    bind_blob(&b, tokens.p, tokens.n);
    bind_blob(&b, logprobs.p, logprobs.n);
    bind_blob(&b, spans.p, spans.n);
    bind_blob(&b, text.p, text.n);
    return bind_run(&b);
}

/* An end whose start this writer never saw still gets its row: nothing is dropped. */
static int attempt_row(Writer *w, const SampleEndFact *f, int64_t *attempt_id)
{
    static const char find[] = "SELECT attempt_id FROM attempt WHERE sample_id = ? AND try = ?";
    static const char add[] =
        "INSERT INTO attempt (started_us, step, group_id, sample_id, try, eval, fate)"
        " VALUES (?, -1, 0, ?, ?, 0, 0)";
    sqlite3_stmt *stmt = db_stmt(&w->db, find, NULL);
    sqlite3_bind_int64(stmt, 1, f->sample);
    sqlite3_bind_int64(stmt, 2, f->attempt);
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        *attempt_id = sqlite3_column_int64(stmt, 0);
    }
    sqlite3_reset(stmt);
    if (rc == SQLITE_ROW) {
        return SQLITE_OK;
    }
    Bind b = {db_stmt(&w->db, add, NULL), 0};
    bind_i64(&b, f->t_us);
    bind_i64(&b, f->sample);
    bind_i64(&b, f->attempt);
    rc = bind_run(&b);
    w->attempt = sqlite3_last_insert_rowid(w->db.handle);
    *attempt_id = w->attempt;
    return rc;
}

int apply_sample_end(Writer *w, const SampleEndFact *f)
{
    static const char sql[] =
        "UPDATE attempt SET ended_us = ?, engine = coalesce(?, engine), fate = ?, finish = ?,"
        " reason = ?, reward = ?, reward_us = ?, tokens = ?, versions = ?, first_token_us = ?"
        " WHERE attempt_id = ?";
    Flight *flight = flight_of_sample(w, f->sample);
    int64_t engine = f->engine;
    int64_t attempt_id = 0;
    int rc = SQLITE_OK;
    if (flight != NULL && flight->attempt == f->attempt) {
        attempt_id = flight->attempt_id;
        engine = engine != 0 ? engine : flight->engine;
        flight_remove(w, flight);
    } else {
        rc = attempt_row(w, f, &attempt_id);
    }
    int64_t finish = f->finish != NULL ? words_id(&w->words, &w->db, f->finish) : 0;
    if (rc != SQLITE_OK || finish < 0) {
        return rc != SQLITE_OK ? rc : SQLITE_ERROR;
    }
    Text versions;
    text_init(&versions, 1024);
    versions_text(f, &versions);
    Bind b = {db_stmt(&w->db, sql, NULL), 0};
    bind_i64(&b, f->t_us);
    bind_some(&b, f->engine);
    bind_i64(&b, f->fate);
    bind_some(&b, finish);
    bind_text(&b, f->reason);
    bind_val(&b, f->reward);
    bind_some(&b, f->reward.known ? f->t_us : 0);
    bind_i64(&b, (int64_t)f->token_count);
    bind_text(&b, versions.n > 0 ? versions.p : NULL);
    bind_some(&b, f->first_token_us);
    bind_i64(&b, attempt_id);
    rc = bind_run(&b);
    text_free(&versions);
    if (rc == SQLITE_OK) {
        rc = insert_data(w, attempt_id, f);
    }
    if (f->first_token_us > 0 && engine != 0) {
        EngineAcc *acc = acc_find(&w->engines, engine);
        acc->first_token_us += f->first_token_us;
        acc->first_tokens++;
        acc->dirty = true;
    }
    return rc;
}

int apply_sample_reward(Writer *w, const SampleRewardFact *f)
{
    static const char sql[] =
        "UPDATE attempt SET reward = ?, reward_us = ? WHERE attempt_id = coalesce("
        "(SELECT attempt_id FROM attempt WHERE sample_id = ?3 AND fate = ?4),"
        "(SELECT attempt_id FROM attempt WHERE sample_id = ?3 ORDER BY try DESC LIMIT 1))";
    Bind b = {db_stmt(&w->db, sql, NULL), 0};
    bind_val(&b, f->reward);
    bind_i64(&b, f->t_us);
    bind_i64(&b, f->sample);
    bind_i64(&b, FATE_ACCEPTED);
    return bind_run(&b);
}
