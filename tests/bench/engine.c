/* Generation speed of a whole engine: HTTP, JSON, scheduler, log-probs and model, in tokens per
 * CPU second of its process, unary and streamed; then the same streams through a frontend. Beside
 * it: peers/torch/bench_cpu.py --what generate (model only, no server). Prints, judges nothing. */
#include "core/serve/engine.h"
#include "core/serve/frontend.h"
#include "tests/bench/model_bench.h"
#include "tests/serve/rig.h"

#include <time.h>

typedef struct Job {
    int64_t batch, prompt, fresh, rounds, threads;
} Job;

static double cpu_of(pid_t pid)
{
    clockid_t id;
    struct timespec t = {0, 0};
    if (clock_getcpuclockid(pid, &id) == 0) {
        clock_gettime(id, &t);
    }
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static char *body_of(const Job *job, Rng *rng, bool stream)
{
    Text text;
    text_init(&text, 1u << 20);
    text_addf(&text, "{\"stream\":%s,\"return_logprob\":true,\"sampling_params\":{\"max_new_tokens"
              "\":%lld,\"temperature\":1.0,\"ignore_eos\":true},\"input_ids\":[",
              stream ? "true" : "false", (long long)job->fresh);
    for (int64_t i = 0; i < job->prompt; i++) {
        text_addf(&text, "%s%d", i ? "," : "", 1 + (int)rng_below(rng, 500));
    }
    text_add_c(&text, "]}");
    return text_take(&text);
}

static void round_of(int port, const Job *job, Rng *rng, bool stream)
{
    int *fds = xcalloc((size_t)job->batch, sizeof *fds);
    for (int64_t i = 0; i < job->batch; i++) {
        char *body = body_of(job, rng, stream);
        fds[i] = http_send(port, "POST", "/generate", "", body);
        free(body);
    }
    for (int64_t i = 0; i < job->batch; i++) {
        Reply reply = http_read(fds[i]);
        if (reply.status != 200 || !reply.whole) {
            fprintf(stderr, "engine: status %d\n%.200s\n", reply.status, reply.body);
            exit(1);
        }
        reply_free(&reply);
    }
    free(fds);
}

static void measure(const char *what, pid_t pid, pid_t front, int port, const Job *job, Rng *rng,
                    bool stream)
{
    round_of(port, job, rng, stream);
    double cpu = cpu_of(pid);
    double front_cpu = front ? cpu_of(front) : 0;
    int64_t start = clock_mono_us();
    for (int64_t i = 0; i < job->rounds; i++) {
        round_of(port, job, rng, stream);
    }
    double tokens = (double)(job->batch * job->fresh * job->rounds);
    double seconds = (double)(clock_mono_us() - start) / 1e6;
    cpu = cpu_of(pid) - cpu;
    printf("engine %-16s batch %lld, %lld + %lld tokens: %8.0f tokens/CPU s, %8.0f tokens/s",
           what, (long long)job->batch, (long long)job->prompt, (long long)job->fresh,
           tokens / cpu, tokens / seconds);
    if (front) {
        printf(", frontend %.1f us CPU a token", (cpu_of(front) - front_cpu) * 1e6 / tokens);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    Job job = {32, 32, 96, 6, 1};
    const char *model = NULL;
    const FlagSpec specs[] = {
        {"model", FLAG_STRING, &model, 0, 0, "DIR", "checkpoint; made if not given", NULL},
        {"batch", FLAG_INT, &job.batch, 1, 1024, "N", "samples together", NULL},
        {"prompt", FLAG_INT, &job.prompt, 1, 512, "N", "prompt tokens", NULL},
        {"fresh", FLAG_INT, &job.fresh, 1, 512, "N", "new tokens", NULL},
        {"rounds", FLAG_INT, &job.rounds, 1, 1000, "N", "measured rounds", NULL},
        {"threads", FLAG_INT, &job.threads, 1, 64, "N", "threads of the model", NULL}};
    FlagRest rest = {0};
    Fault fault = {0};
    Bench bench;
    bench_stop(flags_parse(specs, 6, argc, argv, &rest, &fault), &fault);
    bench_open(&bench, model);
    char threads[16];
    (void)str_format(threads, sizeof threads, "%lld", (long long)job.threads);
    const char *engine_argv[] = {"engine", "--model-path", bench.dir, "--port", "0", "--threads",
                                 threads, "--incremental-streaming-output", NULL};
    Part engine = part_start(engine_main, engine_argv, 1);
    char address[40];
    (void)str_format(address, sizeof address, "127.0.0.1:%d", engine.ports[0]);
    const char *front_argv[] = {"frontend", "--engine", address, "--port", "0", NULL};
    Part front = part_start(frontend_main, front_argv, 1);
    Rng rng;
    rng_seed(&rng, 1);
    measure("unary", engine.pid, 0, engine.ports[0], &job, &rng, false);
    measure("streamed", engine.pid, 0, engine.ports[0], &job, &rng, true);
    measure("behind frontend", engine.pid, front.pid, front.ports[0], &job, &rng, true);
    (void)part_stop(&front);
    (void)part_stop(&engine);
    if (bench.temporary) {
        (void)fs_remove_tree(bench.dir, NULL);
    }
    flags_free(specs, 6, &rest);
    return test_failures != 0;
}
