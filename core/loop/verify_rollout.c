#include "core/loop/verify_private.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 40, RETRY_US = 250000, SILENCE_MS = 20000, PROMPT = 8 };

typedef struct VSample {
    Verify *v;
    struct Flight *flight;
    Generation *generation;
    int index, tries;
    bool done;
    int64_t due_us;
} VSample;

typedef struct Flight {
    VerifyRollout *r;
    VSample *samples;
    int done, in_flight;
    bool begun, mid_called, closing;
} Flight;

/* Ids that exist in every vocabulary; one outside would end a real engine. */
static const int32_t small_ids[PROMPT] = {1, 2, 3, 4, 5, 6, 7, 8};

static void on_progress(Generation *g, size_t tokens, void *user)
{
    VSample *s = user;
    int index = fleet_find(s->v->fleet, generate_engine(g));
    s->flight->begun = s->flight->begun || tokens > 0;
    if (index >= 0) {
        fleet_note_tokens(s->v->fleet, index);
    }
}

static bool versions_fit(VerifyRollout *r, const GenerateResult *result)
{
    for (size_t i = 0; i < result->span_count; i++) {
        int64_t version = result->spans[i].weight_version;
        if (r->want_version >= 0 && version != r->want_version) {
            (void)str_format(r->why, sizeof r->why, "tokens of version %lld", (long long)version);
            return false;
        }
        r->version = r->version == -1 || r->version == version ? version : -2;
    }
    return true;
}

static void on_done(Generation *g, const GenerateResult *result, void *user)
{
    (void)g;
    VSample *s = user;
    VerifyRollout *r = s->flight->r;
    s->generation = NULL;
    s->flight->in_flight--;
    if (s->flight->closing) {
        return;
    }
    bool whole = result->end == GENERATE_STOP || result->end == GENERATE_LENGTH;
    bool fits = whole && versions_fit(r, result);
    int index = fleet_find(s->v->fleet, result->engine);
    if (whole && fits) {
        s->done = true;
        s->flight->done++;
        r->whole++;
        r->got_tokens += (int64_t)result->count;
        if (index >= 0) {
            r->served[index]++;
        }
        return;
    }
    r->lost += !whole;
    r->refused += whole;
    if (!whole) {
        (void)str_format(r->why, sizeof r->why, "%s%s%.100s", generate_end_name(result->end),
                         result->detail[0] ? ": " : "", result->detail);
    }
    s->due_us = clock_mono_us() + RETRY_US;
}

static void start(VSample *s)
{
    Verify *v = s->v;
    char rid[96], url[256];
    int engine = s->index % v->count;
    for (int i = 0; i < v->count && !verify_alive(v, engine); i++) {
        engine = (engine + 1) % v->count;
    }
    const char *base = v->frontend_url[0] ? v->frontend_url
                                          : fleet_engine(v->fleet, engine).base_url;
    (void)str_format(url, sizeof url, "%s/generate", base);
    (void)str_format(rid, sizeof rid, "%s-%lld-%d-%d", v->config->run_id,
                     (long long)clock_mono_us(), s->index, ++s->tries);
    GenerateSpec spec = {.url = url, .rid = rid, .input_ids = small_ids, .input_count = PROMPT,
                         .stream = true, .temperature = 1.0, .top_p = 1.0, .top_k = -1,
                         .max_new_tokens = s->flight->r->tokens, .ignore_eos = true, .seed = -1,
                         .silence_ms = SILENCE_MS};
    GenerateEvents events = {.on_progress = on_progress, .on_done = on_done, .user = s};
    Fault fault = {0};
    s->due_us = 0;
    s->flight->in_flight++;
    if (generate_start(v->http, &spec, &events, &s->generation, &fault) != ERR_OK) {
        s->flight->in_flight--;
        s->flight->r->lost++;
        s->due_us = clock_mono_us() + RETRY_US;
        (void)str_format(s->flight->r->why, sizeof s->flight->r->why, "%.150s", fault.sentence);
    }
}

/* Streams of an engine that is known to be dead are asked again elsewhere. */
static void drop_dead(Verify *v, Flight *flight)
{
    for (int64_t i = 0; i < flight->r->samples; i++) {
        VSample *s = &flight->samples[i];
        int index = s->generation ? fleet_find(v->fleet, generate_engine(s->generation)) : -1;
        if (index >= 0 && fleet_engine(v->fleet, index).state == ENGINE_DEAD) {
            generate_cancel(s->generation);
        }
    }
}

static bool turn(Verify *v, void *arg)
{
    Flight *flight = arg;
    int64_t now_us = clock_mono_us();
    if (flight->r->mid && flight->begun && !flight->mid_called) {
        flight->mid_called = true;
        flight->r->mid(v);
    }
    drop_dead(v, flight);
    for (int64_t i = 0; i < flight->r->samples; i++) {
        VSample *s = &flight->samples[i];
        if (!s->done && !s->generation && s->due_us > 0 && now_us >= s->due_us &&
            s->tries < TRIES) {
            start(s);
        }
    }
    return flight->done == flight->r->samples;
}

static bool landed(Verify *v, void *arg)
{
    (void)v;
    return ((Flight *)arg)->in_flight == 0;
}

bool verify_rollout(Verify *v, VerifyRollout *r)
{
    enum { LAND_MS = 5000 };
    Flight flight = {.r = r};
    flight.samples = xcalloc((size_t)r->samples + 1, sizeof *flight.samples);
    r->version = -1;
    for (int64_t i = 0; i < r->samples; i++) {
        flight.samples[i] = (VSample){.v = v, .flight = &flight, .index = (int)i};
        start(&flight.samples[i]);
    }
    bool all = verify_wait(v, turn, &flight, r->bound_ms);
    flight.closing = true;
    for (int64_t i = 0; i < r->samples; i++) {
        if (flight.samples[i].generation) {
            generate_cancel(flight.samples[i].generation);
        }
    }
    bool cancelled = v->cancelled;
    v->cancelled = false; /* what is in flight points here: its ends are waited for */
    while (!verify_wait(v, landed, &flight, LAND_MS)) {
    }
    v->cancelled = v->cancelled || cancelled;
    free(flight.samples);
    return all;
}
