#include "tests/harness.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/rollout/data_source.h"

#include <stdlib.h>

static char dir[] = "/tmp/rolltop-data-XXXXXX";
static char path[600];

static void write_file(const char *name, const char *text)
{
    Fault fault = {0};
    CHECK(str_format(path, sizeof path, "%s/%s", dir, name));
    CHECK_I64(fs_write_atomic(path, text, strlen(text), &fault), ERR_OK);
}

static void write_rows(int64_t n)
{
    Text text;
    text_init(&text, 1 << 20);
    for (int64_t i = 0; i < n; i++) {
        CHECK(text_addf(&text, "{\"input\":\"p%lld\",\"label\":\"%lld\"}\n", (long long)i,
                        (long long)i));
    }
    write_file("rows.jsonl", text_c(&text));
    text_free(&text);
}

static DataSource *open_rows(const char *where, bool shuffle, int64_t seed)
{
    DataConfig config = {.path = where, .label_key = "label", .shuffle = shuffle, .seed = seed};
    DataSource *d = NULL;
    Fault fault = {0};
    CHECK_I64(data_open(&config, &d, &fault), ERR_OK);
    CHECK_STR(fault.sentence, "");
    return d;
}

static cJSON *vectors(void)
{
    Text text;
    Fault fault = {0};
    text_init(&text, 16 << 20);
    CHECK_I64(fs_read(ROLLTOP_TEST_DATA "/datasource-vectors.json", &text, &fault), ERR_OK);
    cJSON *root = cJSON_ParseWithLength(text_c(&text), text.n);
    text_free(&text);
    return root;
}

static void shuffles(void)
{
    cJSON *root = vectors();
    const cJSON *v;
    int seen = 0;
    cJSON_ArrayForEach(v, json_get(root, "shuffle"))
    {
        int64_t n = json_i64(v, "n", 0);
        const DataRow **rows = xcalloc((size_t)n, sizeof *rows);
        write_rows(n);
        DataSource *d = open_rows(path, true, json_i64(v, "rollout_seed", 0));
        data_seek(d, (DataPosition){json_i64(v, "epoch_id", 0), 0});
        CHECK_I64(data_take(d, n, rows), n);
        for (int64_t i = 0; i < n; i++) {
            const cJSON *want = cJSON_GetArrayItem(json_get(v, "permutation"), (int)i);
            CHECK_I64(rows[i]->index, want->valuedouble);
        }
        data_free(d);
        free(rows);
        seen++;
    }
    CHECK(seen >= 15);
    cJSON_Delete(root);
}

static void takes(void)
{
    cJSON *root = vectors();
    const cJSON *v;
    const cJSON *call;
    int seen = 0;
    cJSON_ArrayForEach(v, json_get(root, "get_samples"))
    {
        write_rows(json_i64(v, "dataset_len", 0));
        DataSource *d = open_rows(path, json_bool(v, "shuffle", false),
                                  json_i64(v, "rollout_seed", 0));
        cJSON_ArrayForEach(call, json_get(v, "calls"))
        {
            const DataRow *rows[16] = {0};
            DataPosition before = data_position(d);
            CHECK_I64(data_take(d, json_i64(call, "request", 0), rows),
                      json_i64(call, "returned_groups", -1));
            const cJSON *group;
            int i = 0;
            cJSON_ArrayForEach(group, json_get(call, "groups"))
            {
                char label[32] = "";
                CHECK(rows[i] != NULL);
                (void)str_format(label, sizeof label, "%.*s", (int)rows[i]->label.n,
                                 rows[i]->label.p);
                CHECK_STR(label, json_string(group, "label", "?"));
                i++;
            }
            const cJSON *after = json_get(call, "after");
            CHECK_I64(data_position(d).offset, json_i64(after, "sample_offset", -1));
            CHECK_I64(data_position(d).epoch, json_i64(after, "epoch_id", -1));
            /* a resumed run goes on with the same rows */
            const DataRow *again[16] = {0};
            DataPosition end = data_position(d);
            data_seek(d, before);
            CHECK_I64(data_take(d, json_i64(call, "request", 0), again), i);
            CHECK(memcmp(rows, again, sizeof rows) == 0);
            CHECK(data_position(d).offset == end.offset && data_position(d).epoch == end.epoch);
        }
        data_free(d);
        seen++;
    }
    CHECK_I64(seen, 8);
    cJSON_Delete(root);
}

static void slices(void)
{
    cJSON *root = vectors();
    const cJSON *v;
    cJSON_ArrayForEach(v, json_get(root, "path_slice"))
    {
        char sliced[700];
        Fault fault = {0};
        DataSource *d = NULL;
        write_rows(10);
        CHECK(str_format(sliced, sizeof sliced, "%s%s", path, json_string(v, "suffix", "")));
        DataConfig config = {.path = sliced, .label_key = "label"};
        Err err = data_open(&config, &d, &fault);
        const cJSON *want = json_get(v, "rows");
        if (want == NULL) { /* the suffix is part of a name then, which ends in no .jsonl */
            CHECK(err != ERR_OK && strstr(fault.sentence, sliced) != NULL);
        } else if (cJSON_GetArraySize(want) == 0) {
            CHECK_I64(err, ERR_FORMAT);
            CHECK(strstr(fault.sentence, "holds no prompt") != NULL);
        } else {
            CHECK_I64(err, ERR_OK);
            CHECK_I64(data_count(d), cJSON_GetArraySize(want));
            for (int i = 0; err == ERR_OK && i < cJSON_GetArraySize(want); i++) {
                char label[16];
                CHECK(str_format(label, sizeof label, "%d",
                                 (int)cJSON_GetArrayItem(want, i)->valuedouble));
                CHECK(str_equal(data_row(d, i)->label, str_from(label)));
                CHECK_I64(data_row(d, i)->index, i);
            }
        }
        data_free(d);
    }
    cJSON_Delete(root);
}

static void expect_fault(const char *text, const char *label_key, Err want, const char *words)
{
    Fault fault = {0};
    DataSource *d = NULL;
    write_file("bad.jsonl", text);
    DataConfig config = {.path = path, .label_key = label_key};
    CHECK_I64(data_open(&config, &d, &fault), want);
    if (strstr(fault.sentence, words) == NULL) {
        fprintf(stderr, "\"%s\" lacks \"%s\"\n", fault.sentence, words);
    }
    CHECK(strstr(fault.sentence, words) != NULL);
    CHECK(strstr(fault.sentence, path) != NULL);
    CHECK(fault.hint[0] != '\0');
    data_free(d);
}

static void bad_lines(void)
{
    expect_fault("{\"input\":\"a\"}\n\n  \n{\"input\":\"b\"}\nnot json\n", NULL, ERR_FORMAT,
                 "bad.jsonl:5: not a JSON object");
    expect_fault("{\"input\":\"a\"}\n[1,2]\n", NULL, ERR_FORMAT, "bad.jsonl:2: ");
    expect_fault("{\"input\":NaN}\n", NULL, ERR_FORMAT, "bad.jsonl:1: ");
    expect_fault("{\"input\":12}\n", NULL, ERR_FORMAT, "bad.jsonl:1: the prompt is not a string");
    /* A line that is cut is no JSON, wherever the cut is. */
    static const char whole[] = "{\"input\":\"a\",\"label\":\"b\",\"metadata\":{}}";
    for (size_t n = 1; n < sizeof whole - 1; n++) {
        char cut[sizeof whole];
        snprintf(cut, sizeof cut, "%.*s", (int)n, whole);
        expect_fault(cut, NULL, ERR_FORMAT, ":1: not a JSON object");
    }
    expect_fault("\xEF\xBB\xBF{\"input\":\"a\"}\n", NULL, ERR_FORMAT, "byte-order mark");
    char *huge = xcalloc((17 << 20) + 1, 1);
    memset(huge, 'a', 17 << 20);
    char *line = xasprintf("{\"input\":\"b\"}\n{\"input\":\"%s\"}\n", huge);
    expect_fault(line, NULL, ERR_LIMIT, "bad.jsonl:2: the prompt has more than 16 MiB");
    free(line);
    free(huge);
    expect_fault("{\"input\":\"\xFF\"}\n", NULL, ERR_FORMAT, "not valid UTF-8");
    expect_fault("{\"prompt\":\"a\"}\n", NULL, ERR_FORMAT, "no \"input\"");
    expect_fault("{\"input\":\"a\"}\n", "answer", ERR_FORMAT, "no \"answer\"");
    expect_fault("{\"input\":[{\"role\":\"user\"}]}\n", NULL, ERR_UNSUPPORTED, "chat template");
    expect_fault("{\"input\":7}\n", NULL, ERR_FORMAT, "not a string");
    expect_fault("{\"input\":\"a\",\"metadata\":[]}\n", NULL, ERR_FORMAT, "metadata");
    expect_fault("{\"input\":\"a\"", NULL, ERR_FORMAT, ":1: not a JSON object");
    expect_fault("\n \n", NULL, ERR_FORMAT, "holds no prompt");
    Fault fault = {0};
    DataSource *d = NULL;
    DataConfig config = {.path = "/nonexistent/x.jsonl"};
    CHECK(data_open(&config, &d, &fault) != ERR_OK);
    CHECK(strstr(fault.sentence, "/nonexistent/x.jsonl") != NULL);
    fault_clear(&fault);
    config.path = "/nonexistent/x.parquet";
    CHECK_I64(data_open(&config, &d, &fault), ERR_UNSUPPORTED);
    fault_clear(&fault);
    config.path = "/nonexistent/x.csv";
    CHECK_I64(data_open(&config, &d, &fault), ERR_ARG);
}

static void fields(void)
{
    static const struct {
        const char *json, *text;
        LabelKind kind;
    } labels[] = {
        {"\"x\\ny\"", "x\ny", LABEL_TEXT}, {"12", "12", LABEL_INT}, {"-0", "0", LABEL_INT},
        {"123456789012345678901", "123456789012345678901", LABEL_INT}, {"5.0", "5.0", LABEL_FLOAT},
        {"1e3", "1000.0", LABEL_FLOAT}, {"1e16", "1e+16", LABEL_FLOAT},
        {"1.5e-5", "1.5e-05", LABEL_FLOAT}, {"0.0001", "0.0001", LABEL_FLOAT},
        {"123456.789", "123456.789", LABEL_FLOAT}, {"1e22", "1e+22", LABEL_FLOAT},
        {"0.1", "0.1", LABEL_FLOAT}, {"-2.50", "-2.5", LABEL_FLOAT}, {"true", "True", LABEL_BOOL},
        {"false", "False", LABEL_BOOL}, {"[1, 2]", "[1, 2]", LABEL_OTHER}, {"null", NULL, 0},
    };
    Text text;
    text_init(&text, 1 << 16);
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        CHECK(text_addf(&text, "{\"x\":{\"input\":1},\"metadata\":%s,\"input\":\"q\\u00e9\","
                        "\"label\":%s}\r\n", i == 0 ? "{\"a\": [1]}" : "null", labels[i].json));
    }
    write_file("fields.jsonl", text_c(&text));
    DataSource *d = open_rows(path, false, 0);
    for (size_t i = 0; d != NULL && i < sizeof labels / sizeof labels[0]; i++) {
        const DataRow *row = data_row(d, (int64_t)i);
        CHECK(str_equal(row->prompt, STR("q\xC3\xA9")));
        CHECK(str_equal(row->metadata, i == 0 ? STR("{\"a\": [1]}") : STR("{}")));
        CHECK((row->label.p == NULL) == (labels[i].text == NULL));
        if (labels[i].text != NULL) {
            CHECK_STR(row->label.p, labels[i].text);
            CHECK_I64(row->label_kind, labels[i].kind);
        }
    }
    CHECK(d != NULL && data_row(d, -1) == NULL && data_row(d, 1000) == NULL);
    data_free(d);
    text_free(&text);
}

static bool short_enough(const DataRow *row, void *user)
{
    const int *lengths = user;
    return lengths[row->index] <= 4;
}

static void filters(void)
{
    int lengths[] = {1, 5, 3, 9, 4}; /* the length_filter of the vectors */
    const DataRow *rows[3];
    write_rows(5);
    DataSource *d = open_rows(path, false, 42);
    data_filter(d, short_enough, lengths);
    CHECK_I64(data_count(d), 3);
    CHECK_I64(data_take(d, 3, rows), 3);
    CHECK(rows[0]->index == 0 && rows[1]->index == 2 && rows[2]->index == 4);
    data_free(d);
}

int main(void)
{
    Fault fault = {0};
    if (mkdtemp(dir) == NULL) {
        return 1;
    }
    RUN(shuffles);
    RUN(takes);
    RUN(slices);
    RUN(bad_lines);
    RUN(fields);
    RUN(filters);
    CHECK_I64(fs_remove_tree(dir, &fault), ERR_OK);
    return test_end();
}
