/* Samples that are under way when the policy changes, or when their engine is killed: real
 * processes, each mode of --update-inflight. Afterwards every token of every accepted sample is
 * scored again under the policy stamped on it, from the checkpoints that the run published. */
#include "core/base/fs.h"
#include "core/model/infer.h"
#include "core/model/sampler.h"
#include "core/model/tokenizer.h"
#include "store/query.h"
#include "store/view.h"
#include "tests/serve/rig.h"

#include <math.h>

enum { ENGINES = 2, VERSIONS = 512, RESPONSE = 90, POSITIONS = 256, WAIT_MS = 120000 };
static const double TOLERANCE = 2e-3;

static char root[64], base[96], prompts[96], logfile[128];
static const char *run_id;
static pid_t core;
static pid_t others[ENGINES]; /* engines that the run did not start; 0: it starts its own */
static int ports[ENGINES];    /* theirs */

/* ---- the run -------------------------------------------------------------------------------- */

static char *output_of(const char *words)
{
    char *line = xasprintf("'%s' %s 2>/dev/null", ROLLTOP_BINARY, words);
    Text text;
    text_init(&text, 1 << 20);
    fflush(NULL);
    FILE *pipe = popen(line, "r");
    char part[4096];
    for (size_t n; pipe && (n = fread(part, 1, sizeof part, pipe)) > 0;) {
        text_add_str(&text, (Str){part, n});
    }
    int status = pipe ? pclose(pipe) : -1;
    char *all = status == 0 ? xstrdup(text_c(&text)) : NULL;
    text_free(&text);
    free(line);
    return all;
}

static int64_t count_of(const char *sql)
{
    char *text = NULL;
    size_t n = 0;
    FILE *memory = open_memstream(&text, &n);
    Err err = query_sql(logfile, sql, true, memory, NULL);
    fclose(memory);
    const char *at = err == ERR_OK ? strstr(text, "\"n\":") : NULL;
    int64_t count = at ? strtoll(at + 4, NULL, 10) : -1;
    free(text);
    return count;
}

static cJSON *status_now(void)
{
    char *words = xasprintf("ctl status --run %s", run_id);
    char *text = output_of(words);
    cJSON *tree = NULL;
    if (text) {
        (void)json_parse(str_from(text), 1 << 20, "status", &tree, NULL);
    }
    free(text);
    free(words);
    return tree;
}

typedef struct Now {
    int64_t committed;
    int ports[ENGINES], pids[ENGINES], serving;
} Now;

static Now now(void)
{
    Now out = {.committed = -1};
    cJSON *status = status_now();
    out.committed = json_i64(status, "policy_version", -1);
    const cJSON *engine = NULL;
    int i = 0;
    cJSON_ArrayForEach(engine, json_get(status, "engines"))
    {
        const char *colon = strrchr(json_string(engine, "address", ""), ':');
        if (i < ENGINES) {
            out.ports[i] = colon ? atoi(colon + 1) : 0;
            out.pids[i] = others[i] > 0 ? others[i] : (int)json_i64(engine, "pid", 0);
            i++;
        }
        out.serving += json_bool(engine, "serves", false);
    }
    cJSON_Delete(status);
    return out;
}

static bool ready(int64_t version)
{
    for (int i = 0; i < WAIT_MS / 50; i++) {
        Now state = now();
        if (state.committed >= version && state.serving == ENGINES) {
            return true;
        }
        clock_sleep_us(50000);
    }
    return false;
}

/* Once the killed engine serves again as another process. */
static Now after_kill(int pid)
{
    Now state = now();
    for (int i = 0; i < WAIT_MS / 50; i++) {
        bool gone = true;
        for (int k = 0; k < ENGINES; k++) {
            gone = gone && state.pids[k] != pid && state.pids[k] > 0;
        }
        if (gone && state.serving == ENGINES) {
            return state;
        }
        clock_sleep_us(50000);
        state = now();
    }
    test_result(false, __FILE__, __LINE__, "the killed engine serves again");
    return state;
}

/* Answers that never stop by themselves, and slow ones: an update meets them. */
static void set_faults(const Now *state, bool on)
{
    for (int i = 0; i < ENGINES; i++) {
        CHECK_I64(http_status(state->ports[i], "POST", "/_fault", on
                              ? "{\"kind\":\"nostop\",\"p\":1}" : "{\"kind\":\"clear\"}"), 200);
        CHECK(!on || http_status(state->ports[i], "POST", "/_fault",
                                 "{\"kind\":\"slow\",\"f\":0.01}") == 200);
    }
}

/* The engine that holds samples with tokens already; -1: none in time. */
static int busy_engine(const Now *state)
{
    for (int i = 0; i < WAIT_MS / 5; i++) {
        int port = state->ports[i % ENGINES];
        cJSON *json = http_json(port, "GET", "/v1/loads?include=core", "", 200);
        double running = json_num(json, "loads.0.num_running_reqs");
        double used = json_num(json, "loads.0.num_used_tokens");
        cJSON_Delete(json);
        if (running >= 2 && used > running * 32) {
            return i % ENGINES;
        }
        clock_sleep_us(5000);
    }
    return -1;
}

/* The operator goes back one policy, until that has met samples that were under way: `met` finds
 * them in the log. */
static bool update_in_flight(const Now *state, const char *met)
{
    const char *back = "select count(*) n from txn where to_version<from_version and "
                       "outcome='committed' and command_id>0";
    for (int i = 0; i < 50; i++) {
        int64_t before = count_of(back);
        CHECK(busy_engine(state) >= 0);
        char *words = xasprintf("ctl update --to %lld --run %s",
                                (long long)now().committed - 1, run_id);
        char *text = output_of(words); /* refused while another update is under way */
        bool taken = text != NULL;
        free(text);
        free(words);
        for (int k = 0; taken && count_of(back) == before && k < WAIT_MS / 100; k++) {
            clock_sleep_us(100000);
        }
        for (int k = 0; taken && k < 50; k++) { /* what it met is in the log once it has ended */
            if (count_of(met) > 0) {
                return true;
            }
            clock_sleep_us(100000);
        }
    }
    return false;
}

/* `words` are cut at blanks. */
static pid_t spawn(const char *words, const char *out)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        FILE *file = freopen(out, "w", stdout);
        dup2(fileno(file), 2);
        char *argv[64] = {"rolltop"};
        char *rest = NULL;
        int n = 1;
        for (char *word = strtok_r(xstrdup(words), " ", &rest); word && n < 63;
             word = strtok_r(NULL, " ", &rest)) {
            argv[n++] = word;
        }
        execv(ROLLTOP_BINARY, argv);
        _exit(127);
    }
    return pid;
}

static void start_engine(int i)
{
    char *out = xasprintf("%s/engine-%d.out", root, i);
    char *words = xasprintf("engine --model-path %s --incremental-streaming-output --faults "
                            "--port %d", base, ports[i]);
    Text text;
    text_init(&text, 1 << 20);
    (void)unlink(out);
    others[i] = spawn(words, out);
    for (int k = 0; k < WAIT_MS / 20; k++) {
        text_clear(&text);
        size_t at = 0;
        if (fs_read(out, &text, NULL) == ERR_OK &&
            str_find(text_str(&text), STR("listening on http://127.0.0.1:"), &at)) {
            ports[i] = atoi(text_c(&text) + at + strlen("listening on http://127.0.0.1:"));
            break;
        }
        if (waitpid(others[i], NULL, WNOHANG) == others[i]) { /* somebody has its port for now */
            others[i] = spawn(words, out);
        }
        clock_sleep_us(20000);
    }
    CHECK(ports[i] > 0);
    text_free(&text);
    free(words);
    free(out);
}

static void start_run(const char *mode)
{
    char *out = xasprintf("%s.out", logfile);
    char *fleet = others[0] > 0
                      ? xasprintf("--rollout-external-engine-addrs 127.0.0.1:%d 127.0.0.1:%d",
                                  ports[0], ports[1])
                      : xstrdup("--local-engines 2 --engine-faults "
                                "--mask-offpolicy-in-partial-rollout");
    char *words = xasprintf(
        "run --headless --log %s --run-id %s --hf-checkpoint %s --prompt-data %s --rm-type random "
        "--rollout-batch-size 4 --n-samples-per-prompt 4 --num-rollout 100000 "
        "--rollout-max-response-len %d --lr 1e-3 --publish-dtype f32 --trainer-threads 1 "
        "--keep-policies 512 --norm-jump 1000 --update-inflight %s %s", logfile, run_id, base,
        prompts, RESPONSE, mode, fleet);
    core = spawn(words, out);
    free(words);
    free(fleet);
    free(out);
}

static void stop_run(void)
{
    char *words = xasprintf("ctl stop --run %s", run_id);
    free(output_of(words));
    free(words);
    int status = 0;
    for (int i = 0; i < WAIT_MS / 10 && waitpid(core, &status, WNOHANG) != core; i++) {
        clock_sleep_us(10000);
        if (i == WAIT_MS / 10 - 1) {
            kill(core, SIGKILL);
        }
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0); /* nor did a sanitizer speak */
    for (int i = 0; i < ENGINES && others[i] > 0; i++) {
        kill(others[i], SIGKILL);
        waitpid(others[i], NULL, 0);
    }
}

/* ---- the judge ------------------------------------------------------------------------------ */

typedef struct Judge {
    Tokenizer *tokenizer;
    Infer *scorers[VERSIONS];
    Weights *weights[VERSIONS];
    int vocab, accepted, crossed, kept_in_place;
    double worst;  /* distance of a token's log-prob from that of the policy stamped on it … */
    double other;  /* … and from that of another one, which must show */
} Judge;

static Infer *scorer(Judge *judge, int64_t version)
{
    CHECK(version >= 0 && version < VERSIONS);
    if (version < 0 || version >= VERSIONS) {
        return NULL;
    }
    if (!judge->scorers[version]) {
        char *dir = xasprintf("%s.d/policies/v%06lld", logfile, (long long)version);
        InferConfig config = {1, 16, POSITIONS / 16, POSITIONS};
        Fault fault = {0};
        Err err = weights_load(dir, MODEL_F32, &judge->weights[version], &fault);
        err = err ? err : infer_new(judge->weights[version], &config, &judge->scorers[version],
                                    &fault);
        CHECK_STR(err ? fault.sentence : "", "");
        free(dir);
    }
    return judge->scorers[version];
}

/* The span's tokens by the policy that is said to have made them, over all that stands before. */
static double score_span(Judge *judge, const SampleView *s, const TokenIds *prompt,
                         const SampleSpan *span, int64_t policy)
{
    static int32_t tokens[POSITIONS], table[POSITIONS / 16];
    int first = (int)prompt->count + span->from - 1;
    int count = (int)prompt->count + span->to - 1;
    Infer *infer = scorer(judge, policy);
    double worst = 0;
    CHECK(infer != NULL && count < POSITIONS);
    if (!infer) {
        return INFINITY;
    }
    memcpy(tokens, prompt->ids, prompt->count * sizeof *tokens);
    memcpy(tokens + prompt->count, s->tokens, (size_t)(span->to - 1) * sizeof *tokens);
    for (int i = 0; i < POSITIONS / 16; i++) {
        table[i] = i;
    }
    InferSeq seq = {tokens, count, 0, table, first};
    const float *rows = NULL;
    int row_count = 0;
    CHECK_I64(infer_step(infer, &seq, 1, &rows, &row_count, NULL), ERR_OK);
    for (int i = 0; i < span->to - span->from; i++) {
        float right = sampler_logprob(rows + (size_t)i * (size_t)judge->vocab, judge->vocab, 1.0F,
                                      s->tokens[span->from + i]);
        worst = fmax(worst, fabs((double)(right - s->logprobs[span->from + i])));
    }
    return worst;
}

static void judge_sample(Judge *judge, const SampleView *s)
{
    TokenIds prompt = {0};
    CHECK_I64(tokenizer_encode(judge->tokenizer, s->prompt, &prompt, NULL), ERR_OK);
    int32_t at = 0;
    for (size_t i = 0; i < s->span_count; i++) {
        CHECK_I64(s->spans[i].from, at);
        at = s->spans[i].to;
        int64_t policy = s->spans[i].policy_version;
        judge->worst = fmax(judge->worst, score_span(judge, s, &prompt, &s->spans[i], policy));
        if (s->span_count > 1) {
            int64_t other = s->spans[i == 0].policy_version;
            judge->other = fmax(judge->other, score_span(judge, s, &prompt, &s->spans[i], other));
        }
    }
    CHECK_I64(at, (int64_t)s->token_count);
    CHECK(s->token_count <= RESPONSE);
    judge->accepted++;
    judge->crossed += s->span_count > 1;
    judge->kept_in_place += s->span_count > 1 && s->attempt == 1;
    token_ids_free(&prompt);
}

static Judge judge_run(void)
{
    static Judge judge;
    judge = (Judge){.worst = 0};
    View *view = NULL;
    RunView run;
    Arena *arena = arena_new((size_t)1 << 24);
    ModelConfig shape;
    CHECK_I64(model_config_load(base, &shape, NULL), ERR_OK);
    judge.vocab = shape.vocab;
    CHECK_I64(tokenizer_load(base, &judge.tokenizer, NULL), ERR_OK);
    CHECK_I64(view_open(logfile, &view, NULL), ERR_OK);
    CHECK(view_run(view, arena, &run));
    int64_t samples = count_of("select max(sample_id) n from attempt");
    for (int64_t id = 1; id <= samples; id++) {
        SampleView sample;
        arena_reset(arena);
        if (view_sample(view, id, run.last_us, arena, &sample) && sample.fate == FATE_ACCEPTED) {
            judge_sample(&judge, &sample);
        }
    }
    view_close(view);
    arena_free(arena);
    tokenizer_free(judge.tokenizer);
    for (int i = 0; i < VERSIONS; i++) {
        infer_free(judge.scorers[i]);
        weights_unref(judge.weights[i]);
    }
    return judge;
}

/* ---- each mode ------------------------------------------------------------------------------ */

static int64_t with_reason(const char *words)
{
    char *sql = xasprintf("select count(*) n from attempt where reason like '%s'", words);
    int64_t n = count_of(sql);
    free(sql);
    return n;
}

/* A busy engine is killed, again and again until some stream of it has gone on from its tokens:
 * they may all have ended between the look at it and the kill. */
static Now kill_in_flight(Now state)
{
    for (int i = 0; i < 20; i++) {
        int victim = busy_engine(&state);
        CHECK(victim >= 0 && kill(state.pids[victim], SIGKILL) == 0);
        if (others[0] > 0) { /* somebody starts it again under the same address */
            waitpid(others[victim], NULL, 0);
            start_engine(victim);
        }
        state = after_kill(state.pids[victim]);
        for (int k = 0; k < 50; k++) { /* the log trails what happened */
            if (with_reason("%tokens, goes on from them") > 0) {
                return state;
            }
            clock_sleep_us(100000);
        }
        set_faults(&state, true); /* the new process has none */
    }
    return state;
}

static Judge play(const char *mode, const char *name, bool keeps)
{
    run_id = name;
    (void)str_format(logfile, sizeof logfile, "%s/%s.db", root, name);
    start_run(mode);
    bool up = ready(3);
    CHECK(up);
    if (!up) {
        stop_run();
        return (Judge){0};
    }
    Now state = now();
    set_faults(&state, true);
    CHECK(update_in_flight(&state, keeps ? "select count(*) n from attempt where try=1 and "
                                           "versions like '%,%'"
                                         : "select count(*) n from attempt where reason like "
                                           "'abort; %tokens%'"));
    CHECK(ready(1));
    state = kill_in_flight(state);
    set_faults(&state, false);
    int64_t steps = count_of("select count(*) n from step where outcome='ok'");
    for (int i = 0; i < WAIT_MS / 100 &&
                    count_of("select count(*) n from step where outcome='ok'") < steps + 1; i++) {
        clock_sleep_us(100000);
    }
    stop_run();
    Judge judge = judge_run();
    printf("     %d samples accepted, %d of two policies (%d kept by their engine), worst "
           "log-prob off by %.1e, by the other policy %.1e\n", judge.accepted,
           judge.crossed, judge.kept_in_place, judge.worst, judge.other);
    CHECK(judge.accepted >= 32);
    CHECK(judge.worst < TOLERANCE);
    CHECK(judge.crossed == 0 || judge.other > 10 * TOLERANCE);
    /* Streams of the engine that was killed went on under the same policy, in every mode; of whole
     * replies nothing had come. */
    CHECK(with_reason("%tokens, goes on from them") > 0);
    CHECK_I64(count_of("select count(*) n from txn where outcome<>'committed'"), 0);
    return judge;
}

static void aborted_and_generated_anew(void)
{
    Judge judge = play("abort", "abort", false);
    CHECK_I64(judge.crossed, 0);
    CHECK(with_reason("abort; %tokens, begins anew as set") > 0);
    CHECK_I64(with_reason("abort; %goes on%"), 0);
}

static void resumed_from_their_tokens(void)
{
    Judge judge = play("resume", "resume", false);
    CHECK(judge.crossed > 0);
    CHECK_I64(judge.kept_in_place, 0);
    CHECK(with_reason("abort; %tokens, goes on from them") > 0);
    CHECK(count_of("select count(*) n from metric join word on name=word_id where "
                   "text='rollout/offpolicy_token_share' and value>0 and value<1") > 0);
}

static void kept_in_place(void)
{
    Judge judge = play("in-place", "place", true);
    CHECK(judge.kept_in_place > 0);
    CHECK_I64(with_reason("abort%"), 0);
}

/* Engines of others without a frontend: whole replies, from the engines themselves. */
static void engines_of_others(void)
{
    for (int i = 0; i < ENGINES; i++) {
        start_engine(i);
    }
    Judge judge = play("resume", "others", false);
    CHECK(judge.crossed > 0);
    CHECK_I64(judge.kept_in_place, 0);
    CHECK(with_reason("abort; %tokens, goes on from them") > 0);
    /* Of a whole reply that a killed engine owed nothing had come. */
    CHECK_I64(count_of("select count(*) n from attempt where try=1 and fate<>1 and "
                       "reason like 'reset%tokens%'"), 0);
    cJSON *status = status_now();
    CHECK(status == NULL); /* it has ended */
    for (int i = 1; i <= ENGINES; i++) {
        char *sql = xasprintf("select count(*) n from attempt where engine=%d and fate=1", i);
        CHECK(count_of(sql) > 0);
        free(sql);
    }
    CHECK_I64(count_of("select count(*) n from child_line where child in "
                       "(select word_id from word where text='frontend')"), 0);
}

static void make_task(void)
{
    static const char *const special[] = {"<pad>", "<eos>"};
    CHECK_I64(fs_mkdirs(base, 0755, NULL), ERR_OK);
    Text text;
    text_init(&text, 1 << 20);
    CHECK_I64(fs_read(ROLLTOP_TEST_DATA "/golden-qwen3/tied/config.json", &text, NULL), ERR_OK);
    char *path = fs_join(base, "config.json");
    CHECK_I64(fs_write_atomic(path, text.p, text.n, NULL), ERR_OK);
    free(path);
    ModelConfig shape;
    CHECK_I64(model_config_load(base, &shape, NULL), ERR_OK);
    CHECK_I64(weights_init_random(&shape, 11, base, NULL), ERR_OK);
    CHECK_I64(tokenizer_write_alphabet(base, special, 2, STR("abcdefghijklmnopqrstuvwxyz "),
                                       NULL), ERR_OK);
    text_clear(&text);
    for (int i = 0; i < 26; i++) {
        text_addf(&text, "{\"input\":\"sort the %c\",\"label\":\"a\"}\n", 'a' + i);
    }
    CHECK_I64(fs_write_atomic(prompts, text.p, text.n, NULL), ERR_OK);
    text_free(&text);
}

int main(void)
{
    (void)str_format(root, sizeof root, "/tmp/rolltop-inflight-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
    (void)str_format(base, sizeof base, "%s/base", root);
    (void)str_format(prompts, sizeof prompts, "%s/prompts.jsonl", root);
    setenv("XDG_STATE_HOME", root, 1);
    setenv("XDG_RUNTIME_DIR", root, 1);
    make_task();
    RUN(aborted_and_generated_anew);
    RUN(resumed_from_their_tokens);
    RUN(kept_in_place);
    RUN(engines_of_others);
    CHECK_I64(fs_remove_tree(root, NULL), ERR_OK);
    return test_end();
}
