/* What comes back from an engine, judged: only what says success in its own words is success. */
#include "core/fleet/engine_routes.h"

#include "core/base/json.h"
#include "core/fleet/engine_scan.h"
#include "core/fleet/peer_error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { REPLY_MAX = 16 << 20 };

static void answer_reset(EngineAnswer *a)
{
    memset(a, 0, sizeof *a);
    a->weight_version = -1;
}

static void ok(EngineAnswer *a)
{
    (void)str_format(a->outcome, sizeof a->outcome, "ok");
}

static void fails(EngineAnswer *a, Err err, const char *outcome, const char *where,
                  const char *words)
{
    a->err = err;
    (void)str_format(a->outcome, sizeof a->outcome, "%s", outcome);
    fault_set(&a->fault, err, NULL, "%s: %s", where, words);
}

static void bad_reply(EngineAnswer *a, const char *where, const char *words)
{
    fails(a, ERR_FORMAT, "bad reply", where, words);
}

static Err err_of_end(HttpEnd end)
{
    switch (end) {
    case HTTP_END_OK: return ERR_OK;
    case HTTP_END_TIMEOUT_CONNECT:
    case HTTP_END_TIMEOUT_SILENT:
    case HTTP_END_TIMEOUT_TOTAL: return ERR_TIMEOUT;
    case HTTP_END_CANCELLED: return ERR_CANCELLED;
    case HTTP_END_TOO_LARGE:
    case HTTP_END_MALFORMED: return ERR_FORMAT;
    case HTTP_END_REFUSED:
    case HTTP_END_RESET:
    case HTTP_END_NAME:
    case HTTP_END_TLS: return ERR_NET;
    }
    return ERR_NET;
}

static void keep_text(EngineAnswer *a, const char *text)
{
    (void)str_format(a->text, sizeof a->text, "%s", text);
}

/* A version is a string of digits at every known engine; "default" is none. */
static int64_t version_of(const cJSON *tree, const char *key)
{
    int64_t version = -1;
    const char *text = json_string(tree, key, NULL);
    if (!text) {
        version = json_i64(tree, key, -1);
    } else if (!str_to_i64(str_from(text), &version)) {
        version = -1;
    }
    return version >= 0 ? version : -1;
}

/* "… Weight version updated to 7." */
static int64_t version_in_message(Str text)
{
    Str mark = STR("Weight version updated to ");
    size_t at = 0;
    int64_t version = -1;
    if (!str_find(text, mark, &at)) {
        return -1;
    }
    Str rest = str_slice(text, at + mark.n, text.n);
    size_t n = 0;
    while (n < rest.n && rest.p[n] >= '0' && rest.p[n] <= '9') {
        n++;
    }
    return str_to_i64(str_slice(rest, 0, n), &version) ? version : -1;
}

static bool judge_said(const EngineSaid *said, const char *where, EngineAnswer *a)
{
    PeerError words = {0};
    peer_error_clean(said->message, words.text, sizeof words.text);
    keep_text(a, words.text);
    if (said->no) {
        fails(a, ERR_PEER, "refused by engine", where,
              words.text[0] ? words.text : "it said success:false");
    } else if (!said->yes) {
        bad_reply(a, where, "the reply says neither success nor failure");
    } else {
        a->weight_version = version_in_message(said->message);
        a->known_paused = said->known_paused;
        a->paused = said->paused;
        ok(a);
    }
    return !a->err;
}

static void parse_said(EngineCallKind kind, const char *where, Str body, EngineAnswer *a)
{
    EngineSaid said;
    if (!engine_scan_said(body, &said)) {
        bad_reply(a, where, "the reply is not JSON");
    } else if (judge_said(&said, where, a) && kind == ENGINE_CHECKSUM) {
        if (said.checksum.n == 0 || said.checksum.n >= sizeof a->text) {
            bad_reply(a, where, "no per_engine_checksum in it");
            return;
        }
        a->weight_version = said.version;
        (void)str_format(a->text, sizeof a->text, "%.*s", (int)said.checksum.n, said.checksum.p);
    }
}

static void parse_model_info(const cJSON *tree, const char *where, EngineAnswer *a)
{
    const char *path = json_string(tree, "model_path", NULL);
    if (!path) {
        bad_reply(a, where, "no model_path in it");
        return;
    }
    a->weight_version = version_of(tree, "weight_version");
    keep_text(a, path);
    ok(a);
}

/* What tells one process from the next at the same address: our engines say pid and start, real
 * ones draw a random seed at start and (newer ones) measure how long each part of it took. */
static void parse_server_info(const EngineCall *call, const cJSON *tree, const char *where,
                              EngineAnswer *a)
{
    const char *version = json_string(tree, "version", NULL);
    int64_t pid = json_i64(tree, "pid", 0);
    const cJSON *start = json_get(tree, "start_time_us");
    start = start ? start : json_get(tree, "start_time");
    if (pid > 0 && cJSON_IsString(start)) {
        (void)str_format(a->text, sizeof a->text, "%lld/%.80s", (long long)pid,
                         start->valuestring);
    } else if (pid > 0 && cJSON_IsNumber(start)) {
        (void)str_format(a->text, sizeof a->text, "%lld/%.0f", (long long)pid,
                         start->valuedouble);
    } else if (!version) {
        bad_reply(a, where, "no version in it");
        return;
    } else {
        const cJSON *startup = json_get(tree, "startup_time");
        (void)str_format(a->text, sizeof a->text, "%.40s/seed %.0f/%.6f", version,
                         json_double(tree, "random_seed", -1),
                         json_double(startup, "scheduler_e2e", 0));
    }
    a->weight_version = version_of(tree, "weight_version");
    a->paused = json_bool(tree, "paused", false);
    Text words;
    text_init(&words, sizeof a->differs - 1);
    a->differ = engine_settings_compare(tree, call->settings, call->setting_count, &words);
    (void)str_format(a->differs, sizeof a->differs, "%s", text_c(&words));
    text_free(&words);
    ok(a);
}

static void parse_score(const EngineCall *call, const char *where, Str body, EngineAnswer *a)
{
    EngineScored scored;
    if (!engine_scan_score(body, call->ids, call->id_count, a->logprobs, &scored)) {
        bad_reply(a, where, "the reply is not JSON");
    } else if (!scored.found) {
        bad_reply(a, where, "no input_token_logprobs in it");
    } else if (scored.odd) {
        bad_reply(a, where, "input_token_logprobs are not those of the ids that were sent");
    } else if (scored.not_finite) {
        fails(a, ERR_NUMERIC, "not finite", where,
              "a log-prob is not finite: the weights are broken");
    } else if (scored.count < 2 || (call->ids && scored.count != call->id_count)) {
        bad_reply(a, where, "input_token_logprobs are too few");
    } else {
        a->logprob_count = scored.count - 1;
        ok(a);
    }
    a->weight_version = scored.version;
}

static void add_load(const cJSON *one, EngineAnswer *a)
{
    const bool old = json_get(one, "num_running_reqs") == NULL; /* /get_load */
    double waiting = json_double(one, "num_waiting_reqs", 0);
    double all = json_double(one, "num_reqs", waiting);
    double total = json_double(one, "num_tokens", 0);
    a->running += old ? (all > waiting ? all - waiting : 0)
                      : json_double(one, "num_running_reqs", 0);
    a->waiting += waiting;
    a->used_tokens += old ? total - json_double(one, "num_pending_tokens", 0)
                          : json_double(one, "num_used_tokens", 0);
    double usage = json_double(one, "token_usage", 0);
    a->token_usage = usage > a->token_usage ? usage : a->token_usage;
    a->gen_throughput += json_double(one, "gen_throughput", 0);
    double hits = json_double(one, "cache_hit_rate", 0);
    a->cache_hit_rate = hits > a->cache_hit_rate ? hits : a->cache_hit_rate;
    a->known_running = a->known_running || json_get(one, "num_waiting_reqs") != NULL;
}

static bool finite_loads(const EngineAnswer *a)
{
    return isfinite(a->running) && isfinite(a->waiting) && isfinite(a->used_tokens)
           && isfinite(a->token_usage) && isfinite(a->gen_throughput)
           && isfinite(a->cache_hit_rate);
}

static void parse_loads(const cJSON *tree, const char *where, EngineAnswer *a)
{
    const cJSON *list = cJSON_IsArray(tree) ? tree : json_get(tree, "loads");
    const cJSON *one = NULL;
    cJSON_ArrayForEach(one, list) {
        add_load(one, a);
    }
    if (!a->known_running) {
        bad_reply(a, where, "no load figures in it");
    } else if (!finite_loads(a)) {
        a->known_running = false;
        bad_reply(a, where, "load figures that are no numbers");
    } else {
        ok(a);
    }
}

static void parse_json(const EngineCall *call, const char *where, Str body, EngineAnswer *a)
{
    cJSON *tree = NULL;
    Fault fault = {0};
    if (json_parse(body, REPLY_MAX, "reply", &tree, &fault) != ERR_OK) {
        bad_reply(a, where, "the reply is not JSON");
        return;
    }
    switch (call->kind) {
    case ENGINE_MODEL_INFO: parse_model_info(tree, where, a); break;
    case ENGINE_SERVER_INFO: parse_server_info(call, tree, where, a); break;
    case ENGINE_LOADS: parse_loads(tree, where, a); break;
    case ENGINE_FLUSH:
    case ENGINE_ABORT:
    case ENGINE_HEALTH:
    case ENGINE_PING:
    case ENGINE_METRICS:
    case ENGINE_PAUSE:
    case ENGINE_CONTINUE:
    case ENGINE_PULL:
    case ENGINE_LOOK:
    case ENGINE_UPDATE_DISK:
    case ENGINE_CHECKSUM:
    case ENGINE_SCORE: ok(a); break; /* read otherwise; the caller does not come here */
    }
    cJSON_Delete(tree);
}

static void parse_failed_status(EngineCallKind kind, const char *where, int status, Str body,
                                EngineAnswer *a)
{
    char outcome[32];
    PeerError error = peer_error_read(body);
    (void)str_format(outcome, sizeof outcome, "http %d", status);
    keep_text(a, error.text);
    if (kind == ENGINE_PING && status < 500) {
        ok(a); /* an older engine without the route: its HTTP process answers, that is all */
        return;
    }
    Err err = status == 404 || status == 405 || status == 501 ? ERR_UNSUPPORTED : ERR_PEER;
    a->err = err;
    (void)str_format(a->outcome, sizeof a->outcome, "%s", outcome);
    const char *hint = status == 401 || status == 403
                           ? "set the engines' admin key; an ordinary key is refused for control"
                           : NULL;
    fault_set(&a->fault, err, hint, "%s: %s%s%.120s", where, outcome, error.text[0] ? ", " : "",
              error.text);
}

void engine_parse(const EngineCall *call, const char *where, HttpEnd end, int status, Str body,
                  EngineAnswer *a)
{
    answer_reset(a);
    a->end = end;
    a->status = status;
    if (end != HTTP_END_OK) {
        fails(a, err_of_end(end), http_end_name(end), where, http_end_name(end));
        return;
    }
    if (status != 200) {
        parse_failed_status(call->kind, where, status, body, a);
        return;
    }
    switch (call->kind) {
    case ENGINE_FLUSH:
    case ENGINE_ABORT:
    case ENGINE_HEALTH:
    case ENGINE_PING:
        ok(a); /* the status is the whole answer (sglang-api 2.2, 7.4) */
        return;
    case ENGINE_METRICS:
        engine_parse_metrics(body, a);
        if (a->known_running || a->known_tokens) {
            ok(a);
        } else {
            bad_reply(a, where, "no engine metrics in it");
        }
        return;
    case ENGINE_PAUSE:
    case ENGINE_CONTINUE:
    case ENGINE_UPDATE_DISK:
    case ENGINE_PULL:
    case ENGINE_LOOK:
    case ENGINE_CHECKSUM:
        parse_said(call->kind, where, body, a);
        return;
    case ENGINE_SCORE:
        parse_score(call, where, body, a);
        return;
    case ENGINE_MODEL_INFO:
    case ENGINE_SERVER_INFO:
    case ENGINE_LOADS:
        parse_json(call, where, body, a);
        return;
    }
}

void engine_parse_reply(EngineCallKind kind, HttpEnd end, int status, Str body,
                        EngineAnswer *answer)
{
    EngineCall call = {.kind = kind};
    engine_parse(&call, engine_route(kind)->path, end, status, body, answer);
}
