/* One engine from its settings to its end. */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/serve/engine_local.h"
#include "core/serve/synthetic.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_TOKENS = 16, LOGITS_BYTES = 32 << 20, STEP_TOKENS_LEAST = 128 };

static const double TTFT_BOUNDS[] = {0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30,
                                     100, 400};
static const double ITL_BOUNDS[] = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5,
                                    1, 2, 4, 8};
static const double E2E_BOUNDS[] = {0.01, 0.05, 0.1, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 900,
                                    2400};

static Err load_real(Engine *engine, Fault *fault)
{
    const EngineSettings *s = engine->settings;
    Err err = weights_load(s->model_path, s->bf16 ? MODEL_BF16 : MODEL_F32, &engine->weights,
                           fault);
    if (err) {
        return err;
    }
    engine->model = *weights_config(engine->weights);
    char *path = fs_join(s->model_path, "tokenizer.json");
    bool has_tokenizer = fs_exists(path);
    free(path);
    if (has_tokenizer) {
        err = tokenizer_load(s->model_path, &engine->tokenizer, fault);
    }
    CoreConfig *core = &engine->core;
    core->vocab = engine->vocab = engine->model.vocab;
    core->eos_count = engine->model.eos_count;
    memcpy(core->eos, engine->model.eos, sizeof core->eos);
    core->context_length = engine->model.max_positions;
    return err;
}

static Err load_synthetic(Engine *engine, Fault *fault)
{
    const EngineSettings *s = engine->settings;
    char digest[DIGEST_TEXT] = "";
    if (s->synthetic_digest) {
        engine->digest = xstrdup(s->synthetic_digest);
    } else if (s->model_path) {
        Err err = digest_of_dir(engine->cache, s->model_path, digest, fault);
        if (err) {
            return err;
        }
        engine->digest = xstrdup(digest);
    } else {
        engine->digest = xstrdup("base");
    }
    if (strlen(engine->digest) >= CORE_NAME_MAX) {
        return fault_set(fault, ERR_ARG, "shorten it",
                         "--synthetic-digest is longer than %d bytes", CORE_NAME_MAX - 1);
    }
    CoreConfig *core = &engine->core;
    core->synthetic = true;
    core->vocab = engine->vocab = core->synthetic_vocab = (int)s->vocab;
    core->eos[0] = SYNTHETIC_EOS;
    core->eos_count = 1;
    core->context_length = 32768;
    return ERR_OK;
}

/* Rows of logits are kept for a whole step: their memory bounds a step of a large vocabulary. */
static void size_core(Engine *engine)
{
    const EngineSettings *s = engine->settings;
    CoreConfig *core = &engine->core;
    if (s->context_length > 0 && s->context_length < core->context_length) {
        core->context_length = (int)s->context_length;
    }
    int64_t step = s->chunk_tokens;
    if (!s->synthetic) {
        int64_t rows = LOGITS_BYTES / ((int64_t)core->vocab * 4);
        rows = rows < STEP_TOKENS_LEAST ? STEP_TOKENS_LEAST : rows;
        step = step < rows ? step : rows;
    }
    step = step > s->max_running ? step : s->max_running;
    core->sched = (SchedConfig){
        .block_tokens = BLOCK_TOKENS,
        .blocks = (int)((s->max_total_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS),
        .max_running = (int)s->max_running, .max_step_tokens = (int)step, .share_prefixes = true};
    core->threads = (int)s->threads;
    core->tokenizer = engine->tokenizer;
    core->seed = s->seed >= 0 ? (uint64_t)s->seed
                              : (uint64_t)clock_wall_us() ^ ((uint64_t)getpid() << 40) ^
                                hash64(engine->name, strlen(engine->name), 0);
    rng_seed(&engine->rng, core->seed ^ 0x5bd1e995u);
}

static Err start_model(Engine *engine, Fault *fault)
{
    const EngineSettings *s = engine->settings;
    Core *core = NULL;
    Err err = core_new(&engine->core, engine->weights, engine->digest, engine->version, &core,
                       fault);
    if (err) {
        return err;
    }
    RunnerConfig config = {.thread = !s->synthetic, .tokens_per_s = s->tokens_per_s,
                           .on_out = engine_on_out, .user = engine};
    return runner_new(engine->loop, &config, core, &engine->runner, fault);
}

Err engine_new(uv_loop_t *loop, const EngineSettings *settings, const char *name, int port,
               DigestCache *cache, Engine **out, Fault *fault)
{
    *out = NULL;
    Engine *engine = xcalloc(1, sizeof *engine);
    engine->settings = settings;
    engine->loop = loop;
    engine->cache = cache;
    engine->name = xstrdup(name);
    engine->model_path = xstrdup(settings->model_path ? settings->model_path : "synthetic");
    engine->served_name = xstrdup(settings->served_name ? settings->served_name
                                                        : engine->model_path);
    engine->version = xstrdup(settings->weight_version);
    engine->start_wall_us = clock_wall_us();
    text_init(&engine->scratch, ENGINE_REPLY_MAX);
    histogram_init(&engine->ttft, TTFT_BOUNDS, HISTOGRAM_BUCKETS);
    histogram_init(&engine->itl, ITL_BOUNDS, HISTOGRAM_BUCKETS);
    histogram_init(&engine->e2e, E2E_BOUNDS, HISTOGRAM_BUCKETS);
    uv_timer_init(loop, &engine->timer);
    engine->timer.data = engine;
    Err err = settings->synthetic ? load_synthetic(engine, fault) : load_real(engine, fault);
    if (!err) {
        size_core(engine);
        err = start_model(engine, fault);
    }
    if (!err) {
        HttpServerConfig config = {.host = settings->host, .port = port,
                                   .server_header = "rolltop", .on_request = engine_on_request,
                                   .on_gone = engine_on_gone, .user = engine};
        err = http_server_new(loop, &config, &engine->server, fault);
    }
    if (err) {
        engine_stop(engine);
        uv_run(loop, UV_RUN_NOWAIT);
        engine_free(engine);
        return err;
    }
    engine->port = http_server_port(engine->server);
    (void)str_format(engine->host, sizeof engine->host, "%s", settings->host);
    *out = engine;
    return ERR_OK;
}

void engine_stop(Engine *engine)
{
    if (engine->stopped) {
        return;
    }
    engine->stopped = true;
    http_server_free(engine->server);
    runner_free(engine->runner); /* frees every request, so the samples forget theirs */
    engine->runner = NULL;
    while (engine->samples) {
        Sample *sample = engine->samples;
        sample->request = NULL;
        engine_forget_sample(engine, sample);
    }
    while (engine->tickets) {
        Ticket *ticket = engine->tickets;
        ticket->loader = NULL; /* of the thread pool; it frees itself */
        ticket_end(ticket);
    }
    free(engine->parked);
    engine->parked = NULL;
    engine->parked_count = 0;
    uv_close((uv_handle_t *)&engine->timer, NULL);
}

void engine_free(Engine *engine)
{
    if (!engine) {
        return;
    }
    tokenizer_free(engine->tokenizer);
    weights_unref(engine->weights);
    text_free(&engine->scratch);
    free(engine->name);
    free(engine->model_path);
    free(engine->served_name);
    free(engine->version);
    free(engine->digest);
    free(engine);
}

void engine_die(Engine *engine, int status)
{
    if (engine->settings->count == 1) {
        _exit(status);
    }
    engine_stop(engine);
}
