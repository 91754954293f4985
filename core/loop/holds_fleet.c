#include "core/loop/holds_fleet.h"

#include "core/base/mem.h"
#include "core/loop/holds_ask.h"
#include "core/model/infer.h"
#include "core/net/evloop.h"
#include "core/policy/artifact.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>

enum { CANARY = 32, BLOCK_TOKENS = 16 };
static const int64_t SCORED_MAX = INT64_C(4) << 30;
static const double TOLERANCE = 0.3; /* engines may compute in BF16 */

typedef struct Asking {
    const HoldsFleet *config;
    uv_loop_t uv;
    uv_signal_t sigint, sigterm;
    HttpClient *http;
    HoldsAsk *ask;
    int32_t canary[CANARY];
    float logprobs[CANARY];
    int logprob_count; /* 0: no forward pass */
    Artifact artifact;
    bool over;
} Asking;

static void on_done(void *user)
{
    Asking *a = user;
    a->over = true;
}

static void on_signal(uv_signal_t *handle, int number)
{
    Asking *a = handle->data;
    (void)number;
    a->over = true;
}

static Err send_call(void *user, int engine, const EngineCall *call, EngineAnswered done,
                     void *done_user, Fault *fault)
{
    Asking *a = user;
    char *url = xasprintf("http://%s", a->config->addrs[engine]);
    const char *key = engine_call_key(call->kind, a->config->bearer, a->config->admin);
    Err err = engine_call(a->http, url, key, call, done, done_user, fault);
    free(url);
    return err;
}

/* log p(next id), at temperature 1. */
static float log_softmax(const float *logits, int n, int32_t id)
{
    double top = (double)logits[0];
    double sum = 0.0;
    for (int i = 1; i < n; i++) {
        top = fmax(top, (double)logits[i]);
    }
    for (int i = 0; i < n; i++) {
        sum += exp((double)logits[i] - top);
    }
    return (float)((double)logits[id] - top - log(sum));
}

/* The artifact's own word on the canary. */
static Err score(Asking *a, Fault *fault)
{
    Weights *weights = NULL;
    Infer *infer = NULL;
    const float *logits = NULL;
    int32_t blocks[CANARY / BLOCK_TOKENS];
    int rows = 0;
    InferConfig config = {.threads = 1, .block_tokens = BLOCK_TOKENS,
                          .blocks = CANARY / BLOCK_TOKENS, .max_batch_tokens = CANARY};
    InferSeq seq = {.tokens = a->canary, .count = CANARY, .block_table = blocks};
    for (int i = 0; i < CANARY / BLOCK_TOKENS; i++) {
        blocks[i] = i;
    }
    Err err = weights_load(a->config->artifact, MODEL_F32, &weights, fault);
    err = err ? err : infer_new(weights, &config, &infer, fault);
    err = err ? err : infer_step(infer, &seq, 1, &logits, &rows, fault);
    int vocab = a->artifact.config.vocab;
    for (int i = 0; err == ERR_OK && i + 1 < rows; i++) {
        a->logprobs[i] = log_softmax(logits + (size_t)i * (size_t)vocab, vocab, a->canary[i + 1]);
        a->logprob_count = i + 1;
    }
    infer_free(infer);
    weights_unref(weights);
    return err;
}

static Err read_artifact(Asking *a, Fault *fault)
{
    int vocab = 256; /* without an artifact: ids that any model has */
    Err err = ERR_OK;
    if (a->config->artifact) {
        err = artifact_check(a->config->artifact, NULL, 0.0, &a->artifact, fault);
        vocab = err ? vocab : a->artifact.config.vocab;
    }
    for (int i = 0; i < CANARY; i++) {
        a->canary[i] = (int32_t)((1 + i * 37) % vocab);
    }
    return err || !a->config->artifact || a->artifact.bytes > SCORED_MAX ? err : score(a, fault);
}

static void ask(Asking *a, Text *out)
{
    size_t count = a->config->addr_count;
    HoldsEngine *engines = xcalloc(count, sizeof *engines);
    for (size_t i = 0; i < count; i++) {
        (void)str_format(engines[i].name, sizeof engines[i].name, "eng-%02zu", i);
        (void)str_format(engines[i].address, sizeof engines[i].address, "%s",
                         a->config->addrs[i]);
        (void)str_format(engines[i].state, sizeof engines[i].state, "asked");
        engines[i].serves = true;
    }
    HoldsConfig config = {.canary = a->canary, .canary_count = CANARY,
                          .vocab = a->artifact.config.vocab, .send = send_call,
                          .on_done = on_done, .user = a};
    a->ask = holds_ask_new(&config, engines, (int)count);
    a->over = !holds_ask_start(a->ask);
    while (!a->over) {
        (void)uv_run(&a->uv, UV_RUN_ONCE);
    }
    HoldExpect expect = {.version = a->config->version, .tolerance = TOLERANCE,
                         .digest = a->config->artifact ? a->artifact.digest : NULL,
                         .logprobs = a->logprob_count > 0 ? a->logprobs : NULL,
                         .logprob_count = a->logprob_count};
    holds_ask_report(a->ask, &expect, out);
    free(engines);
}

Err holds_fleet_run(const HoldsFleet *config, Text *out, Fault *fault)
{
    Asking *a = xcalloc(1, sizeof *a);
    a->config = config;
    Err err = evloop_open(&a->uv, &a->sigint, &a->sigterm, fault);
    if (err != ERR_OK) {
        free(a);
        return err;
    }
    a->sigint.data = a->sigterm.data = a;
    (void)signal(SIGPIPE, SIG_IGN);
    HttpClientConfig http = {.connect_ms = 3000, .silence_ms = 15000, .total_ms = 20000,
                             .max_body = 64 << 20};
    err = http_client_new(&a->uv, &http, &a->http, fault);
    err = err ? err : read_artifact(a, fault);
    if (err == ERR_OK) {
        (void)uv_signal_start(&a->sigint, on_signal, SIGINT);
        (void)uv_signal_start(&a->sigterm, on_signal, SIGTERM);
        ask(a, out);
    }
    http_client_free(a->http);
    uv_close((uv_handle_t *)&a->sigint, NULL);
    uv_close((uv_handle_t *)&a->sigterm, NULL);
    bool closed = evloop_close(&a->uv);
    holds_ask_free(a->ask);
    artifact_free(&a->artifact);
    if (closed) {
        free(a);
    }
    return err;
}
