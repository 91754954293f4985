/* Clients and fleet against this tree's own engine and frontend, as processes: streams of both
 * modes through the frontend, whole replies from the engines, control calls, and an engine killed
 * in mid-stream and started again. Skipped (77) when the binary is not built. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/fleet/fleet.h"
#include "core/fleet/generate.h"
#include "core/net/child.h"
#include "tests/harness.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct Part {
    Child *child;
    char address[64];
    bool ended;
} Part;

static uv_loop_t loop;
static uv_timer_t tick;
static HttpClient *client;
static Fleet *fleet;
static Part engines[2], frontend;
static char generate_url[128];

static void on_line(Child *child, bool is_stderr, Str line, void *user)
{
    (void)child;
    Part *part = user;
    size_t at = 0;
    if (!is_stderr && str_find(line, STR("listening on http://"), &at)) {
        Str address = str_trim(str_slice(line, at + 20, line.n));
        snprintf(part->address, sizeof part->address, "%.*s", (int)address.n, address.p);
    }
}

static void on_exit_of(Child *child, int64_t status, int signal_number, void *user)
{
    (void)child;
    (void)status;
    (void)signal_number;
    ((Part *)user)->ended = true;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static bool wait_for(bool (*ready)(void *), void *what, int64_t limit_ms)
{
    int64_t from = clock_mono_us();
    while (!ready(what) && clock_mono_us() - from < limit_ms * 1000) {
        uv_timer_start(&tick, on_tick, 20, 0);
        uv_run(&loop, UV_RUN_ONCE);
    }
    return ready(what);
}

static bool listens(void *what)
{
    return ((Part *)what)->address[0] != '\0';
}

static void start(Part *part, const char *const *argv)
{
    ChildSpec spec = {.name = argv[1], .argv = argv, .on_line = on_line, .on_exit = on_exit_of,
                      .user = part};
    Fault fault = {0};
    *part = (Part){0};
    CHECK_I64(child_start(&loop, &spec, &part->child, &fault), ERR_OK);
    CHECK(wait_for(listens, part, 10000));
}

static void start_engine(int i, const char *port, bool incremental)
{
    const char *const argv[] = {
        ROLLTOP_BINARY, "engine", "--synthetic", "--port", port, "--weight-version", "3",
        "--synthetic-digest", "d3", "--synthetic-tokens-per-s", "400", "--api-key-env",
        "ROLLTOP_TEST_KEY", "--admin-api-key-env", "ROLLTOP_TEST_ADMIN",
        incremental ? "--incremental-streaming-output" : NULL, NULL};
    start(&engines[i], argv);
}

/* ---- generation --------------------------------------------------------------------------- */

typedef struct Sample {
    int count;
    GenerateEnd end;
    size_t tokens, so_far;
    int32_t ids[64];
    int64_t version;
    char engine[64], detail[160];
} Sample;
enum { SAMPLES = 40, WAIT_MS = 60000 };
static Sample samples[SAMPLES];
static int finished;

static void on_generated(Generation *g, const GenerateResult *r, void *user)
{
    (void)g;
    Sample *s = user;
    s->count++;
    s->end = r->end;
    s->tokens = r->count;
    if (r->count > 0) { /* ids may be NULL where there are none */
        memcpy(s->ids, r->ids, (r->count < 64 ? r->count : 64) * sizeof *r->ids);
    }
    s->version = r->span_count == 1 ? r->spans[0].weight_version : -1;
    snprintf(s->engine, sizeof s->engine, "%s", r->engine);
    snprintf(s->detail, sizeof s->detail, "%s", r->detail);
    finished++;
}

static void on_tokens(Generation *g, size_t tokens, void *user)
{
    Sample *s = user;
    s->so_far = tokens;
    snprintf(s->engine, sizeof s->engine, "%s", generate_engine(g));
}

static void begin(int i, bool stream, int64_t tokens)
{
    static int attempt;
    int32_t prompt[] = {11, 12, 13, i};
    char rid[32];
    char direct[128];
    Generation *g = NULL;
    Fault fault = {0};
    snprintf(direct, sizeof direct, "http://%s/generate", engines[i % 2].address);
    snprintf(rid, sizeof rid, "s%d-a%d-x", i, ++attempt);
    /* A frontend of this generation answers 501 to a whole reply (dynamo-api 5.3). */
    GenerateSpec spec = {.url = stream ? generate_url : direct, .rid = rid,
                         .bearer = stream ? NULL : "ordinary",
                         .input_ids = prompt, .input_count = 4, .vocab = 32000,
                         .stream = stream, .temperature = 1, .top_p = 1, .top_k = -1,
                         .max_new_tokens = tokens, .ignore_eos = true, .seed = -1,
                         .total_ms = 120000, .silence_ms = 60000};
    GenerateEvents events = {.on_progress = on_tokens, .on_done = on_generated,
                             .user = &samples[i]};
    samples[i].count = 0;
    samples[i].so_far = 0;
    if (generate_start(client, &spec, &events, &g, &fault) != ERR_OK) {
        fault_print(&fault);
        CHECK(false);
        finished++;
    }
}

static bool all_finished(void *what)
{
    return finished >= *(int *)what;
}

static void generate_all(bool stream, int64_t tokens)
{
    int wanted = SAMPLES;
    finished = 0;
    for (int i = 0; i < SAMPLES; i++) {
        begin(i, stream, tokens);
    }
    CHECK(wait_for(all_finished, &wanted, 30000));
}

static bool engine_up(void *what)
{
    return fleet_engine(fleet, *(int *)what).state == ENGINE_UP;
}

static bool engine_dead(void *what)
{
    return fleet_engine(fleet, *(int *)what).state == ENGINE_DEAD;
}

static bool frontend_up(void *what)
{
    (void)what;
    return fleet_frontend_up(fleet);
}

static void streams_and_whole_replies_agree(void)
{
    static Sample first[SAMPLES];
    int served[2] = {0, 0};
    for (int way = 0; way < 2; way++) { /* engine 0 is cumulative, 1 incremental */
        generate_all(way == 0, 24);
        for (int i = 0; i < SAMPLES; i++) {
            if (samples[i].end != GENERATE_LENGTH) {
                fprintf(stderr, "%s: %s\n", generate_end_name(samples[i].end), samples[i].detail);
            }
            CHECK_I64(samples[i].end, GENERATE_LENGTH);
            CHECK_I64(samples[i].tokens, 24);
            CHECK_I64(samples[i].version, 3);
            if (way == 0) {
                int index = fleet_find(fleet, samples[i].engine);
                CHECK(index == 0 || index == 1);
                served[index == 1]++;
            } else { /* same policy, same prompt: the same tokens, by whatever way */
                CHECK_STR(samples[i].engine, "");
                CHECK(memcmp(samples[i].ids, first[i].ids, 24 * sizeof(int32_t)) == 0);
            }
        }
        memcpy(first, samples, sizeof first);
    }
    CHECK(served[0] > 0 && served[1] > 0);
}

static int answers;
static EngineAnswer last;

static void on_answer(const EngineAnswer *answer, void *user)
{
    (void)user;
    last = *answer;
    answers++;
}

static bool answered(void *what)
{
    return answers > *(int *)what;
}

static EngineAnswer call(int index, EngineCall what)
{
    int before = answers;
    Fault fault = {0};
    memset(&last, 0, sizeof last);
    CHECK_I64(fleet_call(fleet, index, &what, on_answer, NULL, &fault), ERR_OK);
    CHECK(wait_for(answered, &before, WAIT_MS));
    if (last.err) {
        fprintf(stderr, "%s\n", last.fault.sentence);
    }
    return last;
}

static void control_calls(void)
{
    static const int32_t canary[] = {5, 6, 7, 8};
    char digest[128];
    for (int i = 0; i < 2; i++) {
        CHECK_I64(call(i, (EngineCall){.kind = ENGINE_CHECKSUM}).err, ERR_OK);
        CHECK(i == 0 || strcmp(digest, last.text) == 0);
        memcpy(digest, last.text, sizeof digest);
        CHECK_I64(call(i, (EngineCall){.kind = ENGINE_SCORE, .ids = canary, .id_count = 4}).err,
                  ERR_OK);
        CHECK_I64(last.logprob_count, 3);
    }
    CHECK_I64(call(0, (EngineCall){.kind = ENGINE_PAUSE, .text = "abort"}).err, ERR_OK);
    CHECK_I64(call(0, (EngineCall){.kind = ENGINE_FLUSH}).err, ERR_OK);
    CHECK_I64(call(0, (EngineCall){.kind = ENGINE_CONTINUE}).err, ERR_OK);
    CHECK_I64(call(0, (EngineCall){.kind = ENGINE_MODEL_INFO}).weight_version, 3);
    CHECK_I64(call(0, (EngineCall){.kind = ENGINE_LOADS}).err, ERR_OK);
    CHECK_I64(call(0, (EngineCall){.kind = ENGINE_METRICS}).err, ERR_OK);
    CHECK(last.known_running && last.known_tokens && last.gen_tokens_total > 0);
    CHECK_I64(call(0, (EngineCall){.kind = ENGINE_UPDATE_DISK, .text = "/no/such/directory",
                                   .version = 4}).err, ERR_PEER);
}

/* Each engine has begun a stream that is not over. */
static bool both_stream(void *what)
{
    (void)what;
    bool streams[2] = {false, false};
    for (int i = 0; i < SAMPLES; i++) {
        int index = samples[i].count == 0 && samples[i].so_far > 0
                        ? fleet_find(fleet, samples[i].engine) : -1;
        if (index >= 0) {
            streams[index == 1] = true;
        }
    }
    return streams[0] && streams[1];
}

static void killed_in_mid_stream_and_back(void)
{
    enum { LONG = 1200 }; /* three seconds: over by itself long after the kill */
    int zero = 0;
    int wanted = SAMPLES;
    finished = 0;
    for (int i = 0; i < SAMPLES; i++) {
        begin(i, true, LONG);
    }
    CHECK(wait_for(both_stream, NULL, 60000));
    int64_t from = clock_mono_us();
    kill(child_pid(engines[0].child), SIGKILL);
    CHECK(wait_for(engine_dead, &zero, WAIT_MS));
    printf("     killed engine seen after %lld ms\n", (long long)((clock_mono_us() - from) / 1000));
    CHECK(wait_for(all_finished, &wanted, 60000));
    int whole = 0;
    int cut = 0;
    for (int i = 0; i < SAMPLES; i++) {
        CHECK_I64(samples[i].count, 1);
        bool length = samples[i].end == GENERATE_LENGTH;
        CHECK(!length || samples[i].tokens == LONG);
        CHECK(length || samples[i].end == GENERATE_ERROR_FRAME || samples[i].end == GENERATE_FAILED
              || samples[i].end == GENERATE_TRUNCATED || samples[i].end == GENERATE_BUSY);
        whole += length ? 1 : 0;
        cut += length ? 0 : 1;
    }
    CHECK(whole > 0 && cut > 0);
    char port[16];
    snprintf(port, sizeof port, "%s", strrchr(engines[0].address, ':') + 1);
    child_free(engines[0].child);
    start_engine(0, port, false);
    CHECK(wait_for(engine_up, &zero, WAIT_MS));
    CHECK_I64(fleet_engine(fleet, 0).incarnation, 2);
    CHECK_I64(fleet_engine(fleet, 1).incarnation, 1);
}

static void fleet_up(void)
{
    FleetConfig config = {.probe = probe_settings_default(),
                          .engine_bearer = "ordinary", .engine_admin = "admin"};
    char url[128];
    snprintf(url, sizeof url, "http://%s", frontend.address);
    config.frontend_url = url;
    CHECK_I64(fleet_new(&loop, client, NULL, &config, NULL, &fleet, NULL), ERR_OK);
    for (int i = 0; i < 2; i++) {
        int index = -1;
        char name[16];
        snprintf(name, sizeof name, "eng-%02d", i);
        CHECK_I64(fleet_add(fleet, name, engines[i].address, true, &index, NULL), ERR_OK);
        CHECK_I64(index, i);
        CHECK(wait_for(engine_up, &index, WAIT_MS));
    }
    CHECK(wait_for(frontend_up, NULL, WAIT_MS));
}

int main(void)
{
    if (access(ROLLTOP_BINARY, X_OK) != 0) {
        printf("skipped: %s is not built\n", ROLLTOP_BINARY);
        return 77;
    }
    setenv("ROLLTOP_TEST_KEY", "ordinary", 1); /* each is refused on the other's routes */
    setenv("ROLLTOP_TEST_ADMIN", "admin", 1);
    uv_loop_init(&loop);
    uv_timer_init(&loop, &tick);
    CHECK_I64(http_client_new(&loop, NULL, &client, NULL), ERR_OK);
    start_engine(0, "0", false);
    start_engine(1, "0", true);
    const char *const argv[] = {ROLLTOP_BINARY, "frontend", "--port", "0", "--engine",
                                engines[0].address, "--engine", engines[1].address,
                                "--engine-api-key-env", "ROLLTOP_TEST_KEY",
                                "--engine-admin-api-key-env", "ROLLTOP_TEST_ADMIN", NULL};
    start(&frontend, argv);
    snprintf(generate_url, sizeof generate_url, "http://%s/generate", frontend.address);
    if (test_failures == 0) {
        RUN(fleet_up);
        RUN(streams_and_whole_replies_agree);
        RUN(control_calls);
        RUN(killed_in_mid_stream_and_back);
        fleet_free(fleet);
    }
    http_client_free(client);
    child_free(engines[0].child);
    child_free(engines[1].child);
    child_free(frontend.child);
    uv_close((uv_handle_t *)&tick, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    return test_end();
}
