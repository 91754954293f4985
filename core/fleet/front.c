#include "core/fleet/front.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <stdlib.h>

enum { REFUSED_LIMIT = 2, BODY_MAX = 4 << 20 };

struct Front {
    HttpClient *client;
    const ProbeSettings *settings;
    FrontEvents events;
    ReadinessState readiness;
    char *url;
    bool ask_ready, up, in_flight;
    int refused;
    int64_t due_us;
    OwnTime own;
    int64_t sent_lost_us;
};

Front *front_new(HttpClient *client, const char *url, bool ask_ready,
                 const ProbeSettings *settings, const FrontEvents *events)
{
    Front *f = xcalloc(1, sizeof *f);
    f->client = client;
    f->settings = settings;
    f->events = *events;
    f->url = xstrdup(url);
    f->ask_ready = ask_ready;
    return f;
}

void front_free(Front *f)
{
    if (f) {
        free(f->url);
        free(f);
    }
}

bool front_up(const Front *f)
{
    return f && f->up;
}

const ReadinessState *front_readiness(const Front *f)
{
    static const ReadinessState unknown = {0};
    return f ? &f->readiness : &unknown;
}

static bool get(Front *f, const char *path,
                void (*on_done)(HttpCall *call, const HttpResult *result, void *user),
                int64_t now_us)
{
    char *url = xasprintf("%s%s", f->url, path);
    int64_t bound = probe_timeout_ms(NULL, f->settings, PROBE_FRONTEND, now_us);
    HttpRequestSpec request = {.method = "GET", .url = url, .idempotent = true, .total_ms = bound,
                               .silence_ms = -1, .connect_ms = bound, .max_body = BODY_MAX,
                               .on_done = on_done, .user = f};
    bool sent = http_start(f->client, &request, NULL, NULL) == ERR_OK;
    free(url);
    return sent;
}

static void set_up(Front *f, bool up, const char *reason)
{
    if (!up) { /* whoever comes back may be another */
        f->readiness = (ReadinessState){0};
    }
    if (f->up != up) {
        f->up = up;
        f->events.on_change(up, reason, f->events.user);
    }
}

static void on_ready_done(HttpCall *call, const HttpResult *result, void *user)
{
    (void)call;
    Front *f = user;
    f->in_flight = false;
    if (result->end == HTTP_END_OK && f->up &&
        readiness_reply(&f->readiness, result->status, result->body, clock_mono_us())) {
        f->events.on_ready(f->readiness.now, f->readiness.words, f->events.user);
    }
}

static void ask_ready(Front *f)
{
    char path[READINESS_PATH];
    int64_t now_us = clock_mono_us();
    if (f->ask_ready && f->up && readiness_path(&f->readiness, now_us, path)) {
        f->in_flight = get(f, path, on_ready_done, now_us);
    }
}

/* 200 with a body that says neither unhealthy nor draining; it proves only that the frontend
 * itself runs (dynamo-api 2.2), which is what is asked here. */
static void on_health_done(HttpCall *call, const HttpResult *result, void *user)
{
    (void)call;
    Front *f = user;
    EngineAnswer *a = xcalloc(1, sizeof *a);
    char text[160];
    size_t at = 0;
    const bool good = result->end == HTTP_END_OK && result->status == 200
                      && !str_find(result->body, STR("\"unhealthy\""), &at);
    const bool refused = result->end == HTTP_END_REFUSED || result->end == HTTP_END_RESET
                         || result->end == HTTP_END_NAME;
    (void)own_time_look(&f->own, clock_mono_us());
    const bool ours = result->end == HTTP_END_CANCELLED
                      || own_time_excuses(&f->own, f->sent_lost_us, result->end, result->total_us);
    f->in_flight = false;
    f->refused = refused ? f->refused + 1 : 0;
    a->took_us = result->total_us;
    a->status = result->status;
    a->end = result->end;
    if (result->end == HTTP_END_OK && !good) {
        (void)str_format(a->outcome, sizeof a->outcome, "http %d", result->status);
    } else {
        (void)str_format(a->outcome, sizeof a->outcome, "%s", http_end_name(result->end));
    }
    f->events.on_look(a, good ? result->body : (Str){NULL, 0}, f->events.user);
    (void)str_format(text, sizeof text, "%s: %.60s", f->url, a->outcome);
    if (good) {
        set_up(f, true, "answers");
        ask_ready(f);
    } else if (!ours && (!refused || f->refused >= REFUSED_LIMIT)) {
        set_up(f, false, text);
    }
    free(a);
}

void front_tick(Front *f, int64_t now_us)
{
    if (f) {
        (void)own_time_look(&f->own, now_us);
    }
    if (f && !f->in_flight && f->due_us <= now_us) {
        f->sent_lost_us = f->own.lost_us;
        f->due_us = now_us + f->settings->ping_ms * 1000;
        f->in_flight = get(f, "/health", on_health_done, now_us);
    }
}
