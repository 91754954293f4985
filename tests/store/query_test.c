#include "store/query.h"

#include "tests/harness.h"
#include "tests/store/scene.h"
#include "tests/zst.h"

#include "core/base/json.h"
#include "store/topics.h"

static char *dir, *path;

static char *ask(const char *topic, const char *sql, bool json, Err want, Fault *fault)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    *fault = (Fault){0};
    Err err = topic != NULL ? query_topic(path, topic, json, out, fault)
                            : query_sql(path, sql, json, out, fault);
    CHECK_I64(err, want);
    if (err != want) {
        fprintf(stderr, "  %s: %s\n", topic != NULL ? topic : sql, fault->sentence);
    }
    fclose(out);
    return text;
}

/* Keys of the first line and the number of lines. */
static cJSON *first_row(const char *text, int *lines)
{
    *lines = 0;
    for (const char *p = text; *p != '\0'; p++) {
        *lines += *p == '\n';
    }
    Str rest = str_from(text);
    Str line = {NULL, 0};
    cJSON *row = NULL;
    if (str_split(&rest, '\n', &line)) {
        CHECK_I64(json_parse(line, 1 << 20, "row", &row, NULL), ERR_OK);
    }
    return row;
}

static void test_promised_columns(void)
{
    static const struct {
        const char *topic;
        int rows;
        const char *columns;
    } promises[] = {
        {"steps", 3, "step,started_us,ended_us,outcome,policy_version,samples,tokens,reward_mean,"
                     "eval_reward_mean"},
        {"engines", 2, "engine,address,incarnation,state,policy_version,seen_us"},
        {"policies", 2, "version,digest,state,decided_us"},
        {"samples", 12, "sample,group,step,engine,fate,reward,tokens,versions"},
    };
    for (size_t i = 0; i < sizeof promises / sizeof promises[0]; i++) {
        Fault fault;
        char *text = ask(promises[i].topic, NULL, true, ERR_OK, &fault);
        int lines = 0;
        cJSON *row = first_row(text, &lines);
        CHECK_I64(lines, promises[i].rows);
        Str rest = str_from(promises[i].columns);
        Str name = {NULL, 0};
        const cJSON *member = row != NULL ? row->child : NULL;
        while (str_split(&rest, ',', &name)) {
            char *wanted = xstrndup(name.p, name.n);
            CHECK_STR(member != NULL ? member->string : "(none)", wanted);
            member = member != NULL ? member->next : NULL;
            free(wanted);
        }
        cJSON_Delete(row);
        free(text);
    }
}

static void test_values(void)
{
    Fault fault;
    int lines = 0;
    char *text = ask("samples", NULL, true, ERR_OK, &fault);
    cJSON *row = first_row(text, &lines);
    CHECK_STR(json_string(row, "engine", NULL), "eng-01");
    CHECK_STR(json_string(row, "fate", NULL), "accepted");
    CHECK_STR(json_string(row, "versions", NULL), "1,2");
    CHECK_I64(json_i64(row, "tokens", -1), 4);
    cJSON_Delete(row);
    free(text);
    text = ask("engines", NULL, true, ERR_OK, &fault);
    row = first_row(text, &lines);
    CHECK_STR(json_string(row, "state", NULL), "up");
    CHECK_I64(json_i64(row, "seen_us", -1), AT(60.001));
    cJSON_Delete(row);
    free(text);
    text = ask("steps", NULL, true, ERR_OK, &fault);
    row = first_row(text, &lines);
    CHECK(cJSON_IsNull(json_get(row, "eval_reward_mean")));
    cJSON_Delete(row);
    free(text);
    text = ask("steps", NULL, false, ERR_OK, &fault);
    CHECK(strstr(text, "2026-03-14T10:42:09") != NULL);
    free(text);
    text = ask(NULL, "select blob_text(text) x from attempt_data limit 1", true, ERR_OK, &fault);
    CHECK_STR(text, "{\"x\":\"a\\u0000b\"}\n");
    free(text);
    text = ask(NULL, "select blob_i32(tokens) t, blob_f32(logprobs) l from attempt_data limit 1",
               true, ERR_OK, &fault);
    row = first_row(text, &lines);
    CHECK_STR(json_string(row, "t", NULL), "[5,6,7,8]");
    cJSON *logprobs = cJSON_Parse(json_string(row, "l", "[]"));
    CHECK_I64(cJSON_GetArraySize(logprobs), 4);
    CHECK((float)cJSON_GetArrayItem(logprobs, 3)->valuedouble == -0.4f);
    cJSON_Delete(logprobs);
    cJSON_Delete(row);
    free(text);
}

/* Words, not codes, in every topic that has some. */
static void test_words(void)
{
    static const struct {
        const char *topic, *column, *word;
    } wanted[] = {
        {"probes", "kind", "loads"},       {"probes", "outcome", "ok"},
        {"probes", "engine", "eng-00"},    {"phases", "phase", "generate"},
        {"events", "severity", "warn"},    {"events", "engine", "eng-01"},
        {"incidents", "severity", "crit"}, {"incidents", "engine", "eng-00"},
        {"answers", "phase", "verify"},    {"answers", "engine", "eng-01"},
        {"policies", "state", "committed"}, {"samples", "finish", "stop"},
        {"metrics", "name", "train/pg_loss"}, {"children", "child", "trainer"},
        {"txns", "decision", "commit"},    {"commands", "state", "done"},
        {"groups", "label", "1 2 3"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        Fault fault;
        int lines = 0;
        char *text = ask(wanted[i].topic, NULL, true, ERR_OK, &fault);
        cJSON *row = first_row(text, &lines);
        CHECK_STR(json_string(row, wanted[i].column, "(none)"), wanted[i].word);
        cJSON_Delete(row);
        free(text);
    }
}

static void put_more(Store *store)
{
    IncidentFact incident = {.incident = 1, .onset_us = AT(41), .class_name = "ENGINE-DEAD",
                             .severity = SEVERITY_CRIT, .engine = 1};
    store_put_incident(store, &incident);
    TxnFact txn = {.txn = 1, .t_us = AT(5), .engines = 2};
    store_put_txn(store, &txn);
    TxnAnswerFact answer = {.txn = 1, .engine = 2, .t_us = AT(6), .phase = TXN_VERIFY,
                            .ok = true};
    store_put_txn_answer(store, &answer);
    TxnDecisionFact decision = {.txn = 1, .t_us = AT(7), .commit = true};
    store_put_txn_decision(store, &decision);
    MetricFact metric = {.t_us = AT(8), .name = "train/pg_loss", .value = 0.5};
    store_put_metric(store, &metric);
    ChildLineFact line = {.t_us = AT(8), .child = "trainer", .line = STR("hello")};
    store_put_child_line(store, &line);
    CommandFact command = {.command = 1, .t_us = AT(9), .who = "ana", .what = "pause",
                           .state = "asked"};
    store_put_command(store, &command);
    command = (CommandFact){.command = 1, .t_us = AT(10), .state = "done"};
    store_put_command(store, &command);
}

static void test_every_topic_answers(void)
{
    size_t count = 0;
    const Topic *topics = topics_all(&count);
    for (size_t i = 0; i < count; i++) {
        Fault fault;
        for (int json = 0; json < 2; json++) {
            free(ask(topics[i].name, NULL, json == 1, ERR_OK, &fault));
        }
        char *sql = xasprintf("select count(*) n from %s", topics[i].name);
        free(ask(NULL, sql, true, ERR_OK, &fault));
        free(sql);
    }
}

/* What an older rolltop did not record yet has no rows. */
static void test_older_log(void)
{
    char *now = path;
    Fault fault;
    Text text;
    int lines = 0;
    text_init(&text, 16 << 20);
    path = fs_join(dir, "older.db");
    CHECK(zst_read("log-schema-1.db.zst", &text));
    CHECK_I64(fs_write_atomic(path, text.p, text.n, NULL), ERR_OK);
    test_every_topic_answers();
    char *rows = ask("alert_rules", NULL, true, ERR_OK, &fault);
    cJSON_Delete(first_row(rows, &lines));
    CHECK_I64(lines, 0);
    free(rows);
    text_free(&text);
    free(path);
    path = now;
}

static void test_refusals(void)
{
    Fault fault;
    free(ask("stpes", NULL, true, ERR_ARG, &fault));
    CHECK(strstr(fault.sentence, "\"steps\"") != NULL);
    static const struct {
        const char *sql, *word;
    } refused[] = {
        {"delete from probe", "would change"},
        {"update step set outcome = 'ok'", "would change"},
        {"create table x (a)", "would change"},
        {"insert into last_ok values (9, 9)", "would change"},
        {"pragma journal_mode = delete", "PRAGMA"},
        {"attach '/tmp/x' as y", "attaches"},
        {"begin", "transaction"},
        {"select 1; select 2", "more than one"},
        {"select load_extension('x')", ""},
        {"  ", "empty"},
        {"select nope from step", "nope"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        free(ask(NULL, refused[i].sql, true, ERR_ARG, &fault));
        CHECK(strstr(fault.sentence, refused[i].word) != NULL);
        if (strstr(fault.sentence, refused[i].word) == NULL) {
            fprintf(stderr, "  %s: %s\n", refused[i].sql, fault.sentence);
        }
    }
    /* A trailing semicolon is one statement. */
    free(ask(NULL, "select count(*) from probe;", true, ERR_OK, &fault));
}

/* Text from models and children must not reach a terminal as control sequences. */
static void test_hostile_text(void)
{
    Fault fault;
    char *text = ask("events", NULL, false, ERR_OK, &fault);
    CHECK(strstr(text, "red") != NULL);
    CHECK(strchr(text, '\x1b') == NULL);
    CHECK(strstr(text, "\xe2\x80\xae") == NULL);
    free(text);
}

static void test_closed_pipe(void)
{
    Fault fault = {0};
    FILE *full = fopen("/dev/full", "w");
    CHECK_I64(query_topic(path, "probes", true, full, &fault), ERR_IO);
    fclose(full);
}

int main(void)
{
    dir = scene_dir();
    path = xasprintf("%s/run.db", dir);
    Store *store = NULL;
    Fault fault = {0};
    CHECK_I64(store_open(path, NULL, &store, &fault), ERR_OK);
    scene_put(store);
    for (int64_t v = 1; v <= 2; v++) {
        PolicyFact policy = {.version = v, .t_us = AT(v), .parent = v - 1, .digest = "ab"};
        store_put_policy(store, &policy);
        PolicyStateFact state = {.version = v, .t_us = AT(v + 1), .state = POLICY_COMMITTED};
        store_put_policy_state(store, &state);
    }
    put_more(store);
    EventFact event = {.t_us = AT(3), .source = "eng-01", .engine = 2,
                       .severity = SEVERITY_WARN, .text = "\x1b[31mred\xe2\x80\xae"};
    store_put_event(store, &event);
    store_close(store);
    RUN(test_promised_columns);
    RUN(test_values);
    RUN(test_words);
    RUN(test_every_topic_answers);
    RUN(test_older_log);
    RUN(test_refusals);
    RUN(test_hostile_text);
    RUN(test_closed_pipe);
    free(path);
    scene_remove(dir);
    return test_end();
}
