#include "core/loop/holds_ask.h"

#include "core/base/hash.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { ASK_MS = 15000, PARTS = 3 };
static const EngineCallKind parts[PARTS] = {ENGINE_MODEL_INFO, ENGINE_CHECKSUM, ENGINE_SCORE};

typedef struct HoldsCall {
    HoldsAsk *ask;
    int engine;
    EngineCallKind kind;
} HoldsCall;

struct HoldsAsk {
    HoldsConfig config;
    HoldsEngine *engines;
    Hold *rows;
    HoldsCall *calls; /* PARTS an engine */
    int count, waiting;
};

HoldsAsk *holds_ask_new(const HoldsConfig *config, const HoldsEngine *engines, int count)
{
    HoldsAsk *ask = xcalloc(1, sizeof *ask);
    ask->config = *config;
    ask->count = count;
    ask->engines = xcalloc((size_t)count + 1, sizeof *ask->engines);
    ask->rows = xcalloc((size_t)count + 1, sizeof *ask->rows);
    ask->calls = xcalloc((size_t)count * PARTS + 1, sizeof *ask->calls);
    for (int i = 0; i < count; i++) {
        ask->engines[i] = engines[i];
        ask->rows[i] = (Hold){.asked = engines[i].serves, .version = -1};
    }
    return ask;
}

void holds_ask_free(HoldsAsk *ask)
{
    if (ask) {
        free(ask->engines);
        free(ask->rows);
        free(ask->calls);
        free(ask);
    }
}

static void note(Hold *row, EngineCallKind kind, const EngineAnswer *a)
{
    if (a->err != ERR_OK) {
        bool absent = a->err == ERR_UNSUPPORTED && kind != ENGINE_MODEL_INFO;
        if (!absent && !row->error[0]) {
            (void)str_format(row->error, sizeof row->error, "%s",
                             a->fault.sentence[0] ? a->fault.sentence : a->outcome);
        }
    } else if (kind == ENGINE_MODEL_INFO) {
        row->version = a->weight_version;
    } else if (kind == ENGINE_CHECKSUM) {
        (void)str_format(row->digest, sizeof row->digest, "%s", a->text);
        row->same_digest = strlen(row->digest) == DIGEST_TEXT - 1; /* SGLang's is a SHA-256 */
    } else {
        int n = a->logprob_count < HOLD_CANARY_MAX ? a->logprob_count : HOLD_CANARY_MAX;
        memcpy(row->logprobs, a->logprobs, (size_t)n * sizeof *row->logprobs);
        row->logprob_count = n;
    }
}

static void answered(const EngineAnswer *answer, void *user)
{
    HoldsCall *call = user;
    HoldsAsk *ask = call->ask;
    note(&ask->rows[call->engine], call->kind, answer);
    if (--ask->waiting == 0) {
        ask->config.on_done(ask->config.user);
    }
}

bool holds_ask_start(HoldsAsk *ask)
{
    for (int i = 0; i < ask->count * PARTS; i++) {
        int engine = i / PARTS;
        EngineCall call = {.kind = parts[i % PARTS], .ids = ask->config.canary,
                           .id_count = ask->config.canary_count, .vocab = ask->config.vocab,
                           .timeout_ms = ASK_MS};
        bool skip = call.kind == ENGINE_SCORE && ask->config.canary_count < 2;
        if (!ask->rows[engine].asked || skip) {
            continue;
        }
        ask->calls[i] = (HoldsCall){ask, engine, call.kind};
        EngineAnswer failed = {.err = ERR_STATE};
        if (ask->config.send(ask->config.user, engine, &call, answered, &ask->calls[i],
                             &failed.fault) == ERR_OK) {
            ask->waiting++;
        } else {
            note(&ask->rows[engine], call.kind, &failed);
        }
    }
    return ask->waiting > 0;
}

static void write_row(JsonOut *out, const HoldsEngine *engine, const Hold *row)
{
    json_object_begin(out);
    json_member_string(out, "engine", engine->name);
    json_member_string(out, "address", engine->address);
    json_member_string(out, "state", engine->state);
    json_member_bool(out, "serves", row->asked);
    if (row->asked) {
        json_member_bool(out, "holds", row->holds);
        json_member_i64(out, "version", row->version);
        json_member_string(out, "checksum", row->digest);
        json_member_i64(out, "canary", row->logprob_count);
        if (row->off >= 0) {
            json_member_double(out, "canary_off", row->off);
        }
        json_member_string(out, "why", row->why);
    }
    json_object_end(out);
}

void holds_ask_report(HoldsAsk *ask, const HoldExpect *expect, Text *text)
{
    int failed = holds_judge(ask->rows, ask->count, expect);
    int asked = 0;
    for (int i = 0; i < ask->count; i++) {
        asked += ask->rows[i].asked;
    }
    char message[128];
    char what[48] = "the same policy";
    if (expect->version >= 0) {
        (void)str_format(what, sizeof what, "v%lld", (long long)expect->version);
    }
    (void)str_format(message, sizeof message, "%d of %d engines that serve hold %s",
                     asked - failed, asked, what);
    JsonOut out;
    json_begin(&out, text);
    json_object_begin(&out);
    json_member_bool(&out, "ok", asked > 0 && failed == 0);
    json_member_string(&out, "message", asked > 0 ? message : "no engine serves");
    json_member_i64(&out, "version", expect->version);
    json_member_string(&out, "digest", expect->digest ? expect->digest : "");
    json_member_bool(&out, "own_forward_pass", expect->logprobs != NULL);
    json_member_double(&out, "tolerance", expect->tolerance);
    json_key(&out, "engines");
    json_array_begin(&out);
    for (int i = 0; i < ask->count; i++) {
        write_row(&out, &ask->engines[i], &ask->rows[i]);
    }
    json_array_end(&out);
    json_object_end(&out);
}
