/* Generation of one engine as a client sees it: HTTP, sampling and log-probs included, counted in
 * tokens per CPU second of the engine's process. A round sends `batch` unary requests at once and
 * waits for all, which is the job of peers/torch/bench_cpu.py --what generate on the same model.
 * Every answer is checked (count, ids, finite log-probs) by the core's own generation client. The
 * client's CPU time is not counted; the peer has no client either. Prints, judges nothing. */
#include "core/fleet/generate.h"
#include "core/net/child.h"
#include "tests/bench/model_bench.h"

#include <time.h>
#include <unistd.h>

enum { BATCH_MAX = 1024, GRACE_MS = 3000, START_MS = 30000 };

typedef struct Job {
    int64_t batch, prompt, fresh;
} Job;

typedef struct Load {
    uv_loop_t loop;
    HttpClient *client;
    Child *engine;
    uv_timer_t patience; /* for the engine's first line */
    char base[128], url[160];
    Job job;
    Rng rng;
    int vocab, open;
    int64_t tokens, client_us;
    bool gone;
} Load;

static void die(const char *what, const char *detail)
{
    fprintf(stderr, "engine_load: %s%s%s\n", what, detail ? ": " : "", detail ? detail : "");
    exit(1);
}

/* ---- the engine --------------------------------------------------------------------------- */

static void on_line(Child *child, bool is_stderr, Str line, void *user)
{
    Load *load = user;
    (void)child;
    const char mark[] = "listening on ";
    const char *at = memmem(line.p, line.n, mark, sizeof mark - 1);
    if (is_stderr) {
        fprintf(stderr, "engine: %.*s\n", (int)line.n, line.p);
    } else if (at && !load->base[0]) {
        const char *url = at + sizeof mark - 1;
        (void)snprintf(load->base, sizeof load->base, "%.*s", (int)(line.p + line.n - url), url);
        uv_stop(&load->loop);
    }
}

static void on_exit_of_engine(Child *child, int64_t status, int signal, void *user)
{
    Load *load = user;
    (void)child;
    (void)signal;
    load->gone = true;
    if (load->open > 0 || !load->base[0]) {
        fprintf(stderr, "engine_load: the engine ended with status %lld\n", (long long)status);
        exit(1);
    }
    uv_stop(&load->loop);
}

static void on_patience(uv_timer_t *timer)
{
    (void)timer;
    die("the engine does not listen", NULL);
}

static void engine_open(Load *load, const char *binary, const char *dir, const char *threads,
                        bool bf16)
{
    const char *argv[16] = {binary, "engine", "--model-path", dir, "--port", "0", "--threads",
                            threads, "--seed", "1", bf16 ? "--bf16" : NULL};
    ChildSpec spec = {.name = "engine", .argv = argv, .on_line = on_line,
                      .on_exit = on_exit_of_engine, .user = load};
    Fault fault = {0};
    bench_stop(child_start(&load->loop, &spec, &load->engine, &fault), &fault);
    uv_timer_init(&load->loop, &load->patience);
    uv_timer_start(&load->patience, on_patience, START_MS, 0);
    uv_run(&load->loop, UV_RUN_DEFAULT);
    uv_timer_stop(&load->patience);
    (void)snprintf(load->url, sizeof load->url, "%s/generate", load->base);
}

/* utime + stime of the engine, in microseconds; /proc/PID/stat has the same in ticks of 10 ms. */
static int64_t engine_cpu_us(const Load *load)
{
    clockid_t id;
    struct timespec t;
    if (clock_getcpuclockid(child_pid(load->engine), &id) != 0 || clock_gettime(id, &t) != 0) {
        die("the engine's CPU time cannot be read", NULL);
    }
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* ---- rounds ------------------------------------------------------------------------------- */

static void on_done(Generation *g, const GenerateResult *result, void *user)
{
    Load *load = user;
    (void)g;
    if (result->end != GENERATE_LENGTH || (int64_t)result->count != load->job.fresh) {
        die(generate_end_name(result->end), result->detail);
    }
    load->tokens += (int64_t)result->count;
    if (--load->open == 0) {
        uv_stop(&load->loop);
    }
}

static int64_t round_run(Load *load, bool stream)
{
    int32_t *prompt = xcalloc((size_t)load->job.prompt, sizeof *prompt);
    GenerateEvents events = {.on_done = on_done, .user = load};
    Fault fault = {0};
    load->tokens = 0;
    int64_t cpu = clock_cpu_us();
    for (int64_t i = 0; i < load->job.batch; i++) {
        char rid[32];
        Generation *g = NULL;
        (void)snprintf(rid, sizeof rid, "load-%lld", (long long)i);
        for (int64_t t = 0; t < load->job.prompt; t++) {
            prompt[t] = (int32_t)rng_below(&load->rng, (uint64_t)load->vocab);
        }
        GenerateSpec spec = {.url = load->url, .rid = rid, .input_ids = prompt,
                             .input_count = (size_t)load->job.prompt, .vocab = load->vocab,
                             .stream = stream, .temperature = 1.0, .top_p = 1.0, .top_k = -1,
                             .max_new_tokens = load->job.fresh, .ignore_eos = true, .seed = -1};
        bench_stop(generate_start(load->client, &spec, &events, &g, &fault), &fault);
        load->open++;
    }
    uv_run(&load->loop, UV_RUN_DEFAULT);
    load->client_us += clock_cpu_us() - cpu;
    free(prompt);
    return load->tokens;
}

static void measure(Bench *bench, Load *load, bool stream, double seconds)
{
    (void)round_run(load, stream);
    (void)round_run(load, stream);
    load->client_us = 0;
    int64_t end = clock_mono_us() + (int64_t)(seconds * 1e6);
    do {
        int64_t wall = clock_mono_us();
        int64_t cpu = engine_cpu_us(load);
        int64_t tokens = round_run(load, stream);
        bench_trial(bench, tokens, clock_mono_us() - wall, engine_cpu_us(load) - cpu);
    } while (clock_mono_us() < end || bench->trials < 3);
    double client = (double)load->client_us / (double)bench->tokens;
    char name[96];
    (void)snprintf(name, sizeof name, "generate %lld x (%lld + %lld) HTTP%s",
                   (long long)load->job.batch, (long long)load->job.prompt,
                   (long long)load->job.fresh, stream ? " SSE" : "");
    bench_print(bench, name);
    printf("         besides, the client used %.2f us CPU a token\n", client);
}

static void engine_close(Load *load)
{
    child_stop(load->engine, GRACE_MS);
    while (!load->gone) {
        uv_run(&load->loop, UV_RUN_DEFAULT);
    }
    child_free(load->engine);
    http_client_free(load->client);
    uv_close((uv_handle_t *)&load->patience, NULL);
    uv_run(&load->loop, UV_RUN_DEFAULT);
    uv_loop_close(&load->loop);
}

int main(int argc, char **argv)
{
    const char *model = NULL;
    const char *binary = NULL;
    const char *threads = "1";
    bool stream = false;
    bool bf16 = false;
    double seconds = 4.0;
    Load load = {.job = {.batch = 32, .prompt = 32, .fresh = 96}};
    const FlagSpec specs[] = {
        {"engine", FLAG_STRING, &binary, 0, 0, "FILE", "rolltop's binary (needed)", NULL},
        {"model", FLAG_STRING, &model, 0, 0, "DIR", "checkpoint; default: 2.6M parameters", NULL},
        {"bf16", FLAG_SWITCH, &bf16, 0, 0, NULL, "BF16 weights (FP32)", NULL},
        {"threads", FLAG_STRING, &threads, 0, 0, "N", "threads of the engine (1)", NULL},
        {"batch", FLAG_INT, &load.job.batch, 1, BATCH_MAX, "N", "requests at once", NULL},
        {"prompt", FLAG_INT, &load.job.prompt, 1, 65536, "N", "prompt tokens of each", NULL},
        {"new", FLAG_INT, &load.job.fresh, 1, 65536, "N", "new tokens of each", NULL},
        {"stream", FLAG_SWITCH, &stream, 0, 0, NULL, "SSE, one event a token (unary)", NULL},
        {"seconds", FLAG_DOUBLE, &seconds, 0, 600, "S", "time of one row", NULL},
    };
    const size_t count = sizeof specs / sizeof specs[0];
    FlagRest rest = {0};
    Fault fault = {0};
    bench_stop(flags_parse(specs, count, argc, argv, &rest, &fault), &fault);
    if (!binary) {
        die("give --engine FILE, rolltop's binary", NULL);
    }
    Bench *bench = xcalloc(1, sizeof *bench);
    bench_open(bench, model);
    ModelConfig config;
    bench_stop(model_config_load(bench->dir, &config, &fault), &fault);
    load.vocab = config.vocab;
    bench_describe(&config, bf16 ? "bfloat16" : "float32", atoll(threads));
    rng_seed(&load.rng, 1);
    uv_loop_init(&load.loop);
    bench_stop(http_client_new(&load.loop, NULL, &load.client, &fault), &fault);
    engine_open(&load, binary, bench->dir, threads, bf16);
    measure(bench, &load, stream, seconds);
    engine_close(&load);
    bench_close(bench);
    free(bench);
    flags_free(specs, count, &rest);
    return 0;
}
