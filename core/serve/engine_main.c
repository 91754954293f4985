/* `rolltop engine`: flags, start, signals. */
#include "core/serve/engine.h"

#include "core/base/flags.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/net/child.h"
#include "core/net/evloop.h"
#include "core/serve/engine_local.h"
#include "core/serve/key_env.h"
#include "core/serve/synthetic.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

typedef struct Host { /* the engines of this process */
    uv_loop_t loop;
    EngineSettings settings;
    Engine **engines;
    int count;
    DigestCache *cache;
    uv_signal_t signals[2];
    bool stopping;
} Host;

typedef struct Keys { /* names of environment variables; keys are never in argv */
    const char *api, *admin, *log_level, *device;
    bool help, accepted; /* accepted: flags of SGLang's that change nothing here */
} Keys;

enum { SPEC_COUNT = 29 };

static void fill_specs(EngineSettings *s, Keys *keys, FlagSpec specs[SPEC_COUNT])
{
    const FlagSpec table[SPEC_COUNT] = {
        {"model-path", FLAG_STRING, &s->model_path, 0, 0, "DIR", "Hugging Face directory", NULL},
        {"host", FLAG_STRING, &s->host, 0, 0, "IP", "address to listen on (127.0.0.1)", NULL},
        {"port", FLAG_INT, &s->port, 0, 65535, "N", "port; 0: any free one (30000)", NULL},
        {"name", FLAG_STRING, &s->name, 0, 0, "NAME", "name of the engine (eng-00)", NULL},
        {"threads", FLAG_INT, &s->threads, 1, 1024, "N", "threads of the model (1)", NULL},
        {"max-running-requests", FLAG_INT, &s->max_running, 1, 8192, "N",
         "samples computed together (256)", NULL},
        {"max-queued-requests", FLAG_INT, &s->max_queued, 0, 50000, "N",
         "samples that may wait; more are answered 503 (8192)", NULL},
        {"max-total-tokens", FLAG_INT, &s->max_total_tokens, 64, 1e9, "N",
         "tokens of the KV cache (32768)", NULL},
        {"context-length", FLAG_INT, &s->context_length, 1, 1e9, "N",
         "longest prompt and answer together (the model's)", NULL},
        {"chunked-prefill-size", FLAG_INT, &s->chunk_tokens, 16, 1e6, "N",
         "prompt tokens of one step (2048)", NULL},
        {"stream-interval", FLAG_INT, &s->stream_interval, 1, 1e6, "N",
         "tokens of one stream event (1)", NULL},
        {"incremental-streaming-output", FLAG_SWITCH, &s->incremental, 0, 0, NULL,
         "stream events hold new tokens only, not all so far", NULL},
        {"weight-version", FLAG_STRING, &s->weight_version, 0, 0, "TEXT",
         "version of the weights at start (default)", NULL},
        {"served-model-name", FLAG_STRING, &s->served_name, 0, 0, "NAME",
         "name in /v1/models (the path)", NULL},
        {"api-key-env", FLAG_STRING, &keys->api, 0, 0, "VAR",
         "environment variable that holds the API key", NULL},
        {"admin-api-key-env", FLAG_STRING, &keys->admin, 0, 0, "VAR",
         "environment variable that holds the key of control routes", NULL},
        {"bf16", FLAG_SWITCH, &s->bf16, 0, 0, NULL, "keep weights as BF16 (FP32)", NULL},
        {"seed", FLAG_INT, &s->seed, 0, 9e15, "N", "seed of sampling (from clock and pid)", NULL},
        {"synthetic", FLAG_SWITCH, &s->synthetic, 0, 0, NULL,
         "no model: tokens are a function of policy and prompt", NULL},
        {"synthetic-tokens-per-s", FLAG_DOUBLE, &s->tokens_per_s, 0, 1e9, "N",
         "of each running sample; 0: as fast as it goes (200)", NULL},
        {"synthetic-digest", FLAG_STRING, &s->synthetic_digest, 0, 0, "TEXT",
         "policy digest at start (the directory's)", NULL},
        {"vocab", FLAG_INT, &s->vocab, 16, 10000000, "N", "synthetic vocabulary (32000)", NULL},
        {"count", FLAG_INT, &s->count, 1, 4096, "N",
         "synthetic engines in this process, on ports from --port on (1)", NULL},
        {"faults", FLAG_SWITCH, &s->faults, 0, 0, NULL, "open POST /_fault", NULL},
        {"log-level", FLAG_STRING, &keys->log_level, 0, 0, "LEVEL", "accepted, as SGLang's", NULL},
        {"device", FLAG_STRING, &keys->device, 0, 0, "NAME", "cpu, the only one (cpu)", NULL},
        {"enable-metrics", FLAG_SWITCH, &keys->accepted, 0, 0, NULL, "always on", NULL},
        {"help", FLAG_SWITCH, &keys->help, 0, 0, NULL, "this text", NULL},
        {"skip-server-warmup", FLAG_SWITCH, &keys->accepted, 0, 0, NULL,
         "there is none to skip", NULL},
    };
    memcpy(specs, table, sizeof table);
}

void engine_flags(FlagVisit *visit, void *to)
{
    EngineSettings settings = {0};
    Keys keys = {0};
    FlagSpec specs[SPEC_COUNT];
    fill_specs(&settings, &keys, specs);
    visit(specs, SPEC_COUNT, to);
}

static Err check_settings(EngineSettings *s, const Keys *keys, Fault *fault)
{
    if (!s->synthetic && !s->model_path) {
        return fault_set(fault, ERR_ARG, "name a Hugging Face directory, or use --synthetic",
                         "engine: --model-path is missing");
    }
    if (s->model_path && !fs_is_dir(s->model_path)) {
        return fault_set(fault, ERR_NOT_FOUND, "name a Hugging Face directory on this machine",
                         "engine: --model-path %s is not a directory", s->model_path);
    }
    if (s->count > 1 && !s->synthetic) {
        return fault_set(fault, ERR_ARG, "start one process an engine",
                         "engine: --count needs --synthetic");
    }
    if (s->port > 0 && s->port + s->count > 65536) {
        return fault_set(fault, ERR_ARG, "choose a lower --port, or 0",
                         "engine: --count %lld ports from --port %lld on do not exist",
                         (long long)s->count, (long long)s->port);
    }
    if (keys->device && strcmp(keys->device, "cpu") != 0) {
        return fault_set(fault, ERR_UNSUPPORTED, "use --device cpu, or real SGLang for a GPU",
                         "engine: --device %s is not supported", keys->device);
    }
    if (strlen(s->weight_version) >= CORE_NAME_MAX) {
        return fault_set(fault, ERR_ARG, "shorten it", "--weight-version is longer than %d bytes",
                         CORE_NAME_MAX - 1);
    }
    Err err = key_from_env("api-key-env", keys->api, &s->api_key, fault);
    err = err ? err : key_from_env("admin-api-key-env", keys->admin, &s->admin_key, fault);
    bool loopback = strncmp(s->host, "127.", 4) == 0 || strcmp(s->host, "localhost") == 0 ||
                    strcmp(s->host, "::1") == 0;
    if (!err && !loopback && !s->api_key) {
        return fault_set(fault, ERR_ARG, "set --api-key-env, or bind 127.0.0.1",
                         "engine: --host %s is open to others and no key is set", s->host);
    }
    return err;
}

static void stop_all(Host *host)
{
    if (host->stopping) {
        _Exit(1); /* asked twice */
    }
    host->stopping = true;
    for (int i = 0; i < host->count; i++) {
        engine_stop(host->engines[i]);
    }
    for (int i = 0; i < 2; i++) {
        uv_close((uv_handle_t *)&host->signals[i], NULL);
    }
}

static void on_signal(uv_signal_t *signal, int number)
{
    (void)number;
    stop_all((Host *)signal->data);
}

/* "eng-00" gives eng-00, eng-01, …: the number at its end counts on, with its width. */
static void name_of(const char *base, int index, char *out, size_t size)
{
    size_t n = strlen(base);
    size_t digits = 0;
    while (digits < n && digits < 6 && base[n - digits - 1] >= '0' && base[n - digits - 1] <= '9') {
        digits++;
    }
    int64_t first = 0;
    (void)str_to_i64(str_from(base + n - digits), &first);
    (void)str_format(out, size, "%.*s%0*lld", (int)(n - digits), base, (int)(digits ? digits : 1),
                     (long long)(first + index));
}

static Err start_engines(Host *host, Fault *fault)
{
    EngineSettings *s = &host->settings;
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max; /* a server: each engine and client is a descriptor */
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    host->engines = xcalloc((size_t)s->count, sizeof *host->engines);
    for (int i = 0; i < (int)s->count; i++) {
        char name[128];
        if (s->count == 1) {
            (void)str_format(name, sizeof name, "%s", s->name);
        } else {
            name_of(s->name, i, name, sizeof name);
        }
        Err err = engine_new(&host->loop, s, name, s->port ? (int)s->port + i : 0, host->cache,
                             &host->engines[i], fault);
        if (err) {
            return err;
        }
        host->count = i + 1;
        printf("engine %s listening on http://%s:%d\n", name, s->host, host->engines[i]->port);
    }
    fflush(stdout);
    return ERR_OK;
}

static int run_host(Host *host)
{
    Fault fault = {0};
    if (evloop_open(&host->loop, &host->signals[1], &host->signals[0], &fault) != ERR_OK) {
        fault_print(&fault);
        return 2;
    }
    host->cache = digest_cache_new();
    for (int i = 0; i < 2; i++) {
        host->signals[i].data = host;
        uv_signal_start(&host->signals[i], on_signal, i ? SIGINT : SIGTERM);
    }
    Err err = start_engines(host, &fault);
    if (err) {
        fault_print(&fault);
        stop_all(host);
    }
    uv_run(&host->loop, UV_RUN_DEFAULT);
    for (int i = 0; i < host->count; i++) {
        engine_free(host->engines[i]);
    }
    free(host->engines);
    digest_cache_free(host->cache);
    (void)uv_loop_close(&host->loop);
    return err ? 2 : 0; /* it never served */
}

int engine_main(int argc, char **argv)
{
    child_die_with_parent();
    signal(SIGPIPE, SIG_IGN);
    Host host;
    memset(&host, 0, sizeof host);
    EngineSettings *s = &host.settings;
    *s = (EngineSettings){.host = "127.0.0.1", .name = "eng-00", .weight_version = "default",
                          .port = 30000, .threads = 1, .max_running = 256,
                          .max_total_tokens = 32768, .stream_interval = 1, .count = 1,
                          .vocab = SYNTHETIC_VOCAB, .max_queued = 8192, .chunk_tokens = 2048,
                          .tokens_per_s = 200, .seed = -1};
    static const FlagCommand command = {
        "rolltop engine: an inference server with SGLang's native routes\n", 0, 0, NULL,
        "every setting of an engine is a flag; see rolltop engine --help"};
    Keys keys = {0};
    FlagSpec specs[SPEC_COUNT];
    fill_specs(s, &keys, specs);
    FlagRest rest;
    Fault fault = {0};
    FlagsEnd end = flags_command(&command, specs, SPEC_COUNT, argc, argv, &rest, &fault);
    if (end == FLAGS_HELP) {
        return 0;
    }
    if (end == FLAGS_GO) {
        end = check_settings(s, &keys, &fault) == ERR_OK ? FLAGS_GO : FLAGS_WRONG;
        flags_free(specs, SPEC_COUNT, &rest);
    }
    if (end == FLAGS_WRONG) {
        fault_print(&fault);
        return 2;
    }
    return run_host(&host);
}
