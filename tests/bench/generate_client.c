/* CPU of the generation client per unary reply: 512 tokens with log-probs (22.8 kB), 256 in flight,
 * as the core uses it: HTTP on libuv, scanner, every check, and the log with its writer thread
 * (start and end of each sample, tokens and log-probs included). The server is a process of its
 * own; the Python side of the comparison is generate_client.py on the same server.
 *   bench_generate_client --port PORT [--replies N] [--tokens N] [--quiet-log] */
#include "core/base/clock.h"
#include "core/fleet/generate.h"
#include "tests/bench/bench_log.h"
#include "tests/bench/reply_bytes.h"

#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { IN_FLIGHT = 256, PROMPT = 64 };

typedef struct Client {
    HttpClient *http;
    Store *store; /* NULL: nothing is logged */
    GenerateSpec spec;
    int replies, begun, ended, whole, tokens;
} Client;

typedef struct Slot {
    Client *client;
    int64_t sample;
    char rid[64];
} Slot;

static int64_t cpu_us(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return ((int64_t)use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000 + use.ru_utime.tv_usec
           + use.ru_stime.tv_usec;
}

static void start_next(Slot *slot);

static void on_done(Generation *g, const GenerateResult *r, void *user)
{
    Slot *slot = user;
    Client *client = slot->client;
    (void)g;
    client->ended++;
    if (r->end != GENERATE_LENGTH || r->count != (size_t)client->tokens) {
        fprintf(stderr, "%s: %s\n", generate_end_name(r->end), r->detail);
    } else {
        client->whole++;
    }
    SampleSpan spans[16];
    size_t span_count = r->span_count < 16 ? r->span_count : 16;
    for (size_t i = 0; i < span_count; i++) {
        spans[i] = (SampleSpan){r->spans[i].from, r->spans[i].to, r->spans[i].weight_version};
    }
    SampleEndFact fact = {.sample = slot->sample, .t_us = clock_wall_us(), .engine = 1,
                          .attempt = 1, .fate = FATE_ACCEPTED, .finish = "length",
                          .tokens = r->ids, .logprobs = r->logprobs, .token_count = r->count,
                          .spans = spans, .span_count = span_count, .text = r->text,
                          .first_token_us = r->first_token_us};
    if (client->store) {
        store_put_sample_end(client->store, &fact);
    }
    start_next(slot);
}

static void start_next(Slot *slot)
{
    Client *client = slot->client;
    if (client->begun >= client->replies) {
        return;
    }
    slot->sample = ++client->begun;
    SampleStartFact fact = {.sample = slot->sample, .group = 1, .t_us = clock_wall_us(),
                            .attempt = 1};
    if (client->store) {
        store_put_sample_start(client->store, &fact);
    }
    (void)str_format(slot->rid, sizeof slot->rid, "bench-%lld", (long long)slot->sample);
    client->spec.rid = slot->rid;
    GenerateEvents events = {NULL, on_done, slot};
    Generation *g = NULL;
    Fault fault = {0};
    if (generate_start(client->http, &client->spec, &events, &g, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
}

static void go(Client *client, uv_loop_t *loop)
{
    static Slot slots[IN_FLIGHT];
    for (int i = 0; i < IN_FLIGHT; i++) {
        slots[i].client = client;
        start_next(&slots[i]);
    }
    uv_run(loop, UV_RUN_DEFAULT);
    if (client->store
        && store_wait(client->store, store_ticket(client->store), 60000, NULL) != ERR_OK) {
        fprintf(stderr, "generate_client: the log does not follow\n");
        exit(1);
    }
}

int main(int argc, char **argv)
{
    int port = 0;
    Client client = {.replies = 10000, .tokens = 512};
    bool log = true;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--quiet-log") == 0) {
            log = false;
        } else if (more && strcmp(argv[i], "--port") == 0) {
            port = atoi(argv[++i]);
        } else if (more && strcmp(argv[i], "--replies") == 0) {
            client.replies = atoi(argv[++i]);
        } else if (more && strcmp(argv[i], "--tokens") == 0) {
            client.tokens = atoi(argv[++i]);
        }
    }
    int32_t prompt[PROMPT];
    for (int i = 0; i < PROMPT; i++) {
        prompt[i] = 1000 + i;
    }
    char url[64];
    (void)str_format(url, sizeof url, "http://127.0.0.1:%d/generate", port);
    client.spec = (GenerateSpec){.url = url, .input_ids = prompt, .input_count = PROMPT,
                                 .vocab = REPLY_VOCAB, .temperature = 1, .top_p = 1, .top_k = -1,
                                 .max_new_tokens = client.tokens, .seed = -1};
    uv_loop_t loop;
    uv_loop_init(&loop);
    char *dir = log ? bench_log_open(&client.store) : NULL;
    if (http_client_new(&loop, NULL, &client.http, NULL) != ERR_OK) {
        return 1;
    }
    int64_t from = cpu_us();
    int64_t clock = clock_mono_us();
    go(&client, &loop);
    double each = (double)(cpu_us() - from) / client.replies;
    double wall = (double)(clock_mono_us() - clock) / 1e6;
    http_client_free(client.http);
    uv_run(&loop, UV_RUN_DEFAULT);
    uv_loop_close(&loop);
    store_close(client.store);
    if (dir) {
        (void)fs_remove_tree(dir, NULL);
        free(dir);
    }
    printf("generate_client: %d replies of %d tokens, %d in flight: %.1f us CPU a reply%s, "
           "%.0f replies/s\n", client.replies, client.tokens, IN_FLIGHT, each,
           log ? ", checks and log included" : ", without the log", client.replies / wall);
    return client.whole == client.replies ? 0 : 1;
}
