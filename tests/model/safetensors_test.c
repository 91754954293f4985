#include "tests/harness.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/model/safetensors.h"

#include <stdlib.h>
#include <unistd.h>

static cJSON *load_json(const char *name)
{
    char path[512];
    Text text;
    Fault fault = {0};
    cJSON *root = NULL;
    text_init(&text, 64 << 20);
    CHECK(str_format(path, sizeof path, "%s/%s", ROLLTOP_TEST_DATA, name));
    CHECK(fs_read(path, &text, &fault) == ERR_OK);
    root = cJSON_ParseWithLength(text_c(&text), text.n);
    CHECK(root != NULL);
    text_free(&text);
    return root;
}

/* What our sentence says for a class of the reference. */
static const char *phrase(const char *error_class)
{
    static const char *const table[][2] = {
        {"header_too_small", "header too small"}, {"header_too_large", "header too large"},
        {"invalid_header_length", "invalid header length"}, {"invalid_utf8", "invalid UTF-8"},
        {"invalid_json", "invalid JSON"}, {"invalid_offset", "invalid offset"},
        {"size_mismatch", "size mismatch"}, {"overflow", "overflow"},
        {"not_fully_covered", "not fully covered"}, {"sub_byte", "sub-byte"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (error_class != NULL && strcmp(table[i][0], error_class) == 0) {
            return table[i][1];
        }
    }
    return "not a valid safetensors file";
}

static void check_tensor(const StFile *file, const cJSON *want)
{
    const char *name = json_string(want, "name", "");
    const StTensor *t = NULL;
    for (size_t i = 0; i < st_count(file); i++) {
        const StTensor *x = st_at(file, i);
        bool nul = strcmp(name, "") == 0 && x->name_n > 0 && x->name[0] == '\0';
        /* cJSON cuts the name at U+0000, so that one is known by its own byte count */
        if (nul ? cJSON_GetObjectItem(want, "nul") != NULL : strcmp(x->name, name) == 0) {
            t = x;
        }
    }
    CHECK(t != NULL);
    if (t == NULL) {
        return;
    }
    CHECK_STR(st_dtype_name(t->dtype), json_string(want, "dtype", "?"));
    CHECK_I64(t->bytes, json_i64(want, "bytes", -1));
    const cJSON *shape = json_get(want, "shape");
    CHECK_I64(t->rank, cJSON_GetArraySize(shape));
    for (int d = 0; d < t->rank; d++) {
        CHECK_I64(t->shape[d], (int64_t)cJSON_GetArrayItem(shape, d)->valuedouble);
    }
    const char *hex = json_string(want, "hex", NULL);
    for (size_t i = 0; hex != NULL && i < t->bytes; i++) {
        unsigned byte = 0;
        unsigned char got = 0;
        CHECK(sscanf(hex + 2 * i, "%2x", &byte) == 1);
        CHECK_I64(st_read_bytes(t, i, 1, &got), ERR_OK);
        CHECK_I64(got, byte);
    }
}

static void check_accepted(const StFile *file, const cJSON *c)
{
    const cJSON *tensors = json_get(c, "tensors");
    CHECK_I64(st_count(file), cJSON_GetArraySize(tensors));
    const cJSON *want;
    bool names = strcmp(json_string(c, "file", ""), "good/names.safetensors") == 0;
    int index = 0;
    cJSON_ArrayForEach(want, tensors)
    {
        if (!(names && index == 1)) { /* "\0nul": checked in names_with_nul */
            check_tensor(file, want);
        }
        index++;
    }
    const cJSON *metadata = json_get(c, "metadata");
    const cJSON *item;
    cJSON_ArrayForEach(item, metadata)
    {
        CHECK_STR(st_metadata(file, item->string), item->valuestring);
    }
}

static void verdicts(void)
{
    cJSON *root = load_json("safetensors-cases/cases.json");
    const cJSON *c;
    int seen = 0;
    cJSON_ArrayForEach(c, json_get(root, "cases"))
    {
        char path[512];
        StFile *file = NULL;
        Fault fault = {0};
        const char *name = json_string(c, "file", "");
        bool accept = strcmp(json_string(c, "advice", ""), "accept") == 0;
        CHECK(str_format(path, sizeof path, "%s/safetensors-cases/%s", ROLLTOP_TEST_DATA, name));
        Err err = st_open(path, &file, &fault);
        if (accept != (err == ERR_OK)) {
            fprintf(stderr, "%s: %s\n", name, fault.sentence);
        }
        CHECK_I64(err == ERR_OK, accept);
        if (err == ERR_OK) {
            check_accepted(file, c);
            st_close(file);
        } else {
            /* the reference sees the hole that a dropped duplicate leaves; we name the cause */
            const char *wanted = strstr(name, "duplicate_name") != NULL
                                     ? "duplicate name"
                                     : phrase(json_string(c, "error_class", NULL));
            if (strstr(fault.sentence, wanted) == NULL) {
                fprintf(stderr, "%s: \"%s\" lacks \"%s\"\n", name, fault.sentence, wanted);
            }
            CHECK(strstr(fault.sentence, wanted) != NULL);
            CHECK(strstr(fault.sentence, path) != NULL || strlen(fault.sentence) > 300);
        }
        seen++;
    }
    CHECK_I64(seen, 116);
    cJSON_Delete(root);
}

static void names_with_nul(void)
{
    StFile *file = NULL;
    Fault fault = {0};
    CHECK_I64(st_open(ROLLTOP_TEST_DATA "/safetensors-cases/good/names.safetensors", &file, &fault),
              ERR_OK);
    bool seen = false;
    for (size_t i = 0; file != NULL && i < st_count(file); i++) {
        const StTensor *t = st_at(file, i);
        seen = seen || (t->name_n == 4 && memcmp(t->name, "\0nul", 4) == 0);
    }
    CHECK(seen);
    CHECK(file != NULL && st_find(file, "") != NULL && st_find(file, "")->name_n == 0);
    st_close(file);
}

static void bf16_golden(void)
{
    static const char *const models[] = {"tied", "untied"};
    for (size_t m = 0; m < 2; m++) {
        char path[512];
        StFile *file = NULL;
        Fault fault = {0};
        int pairs = 0;
        CHECK(str_format(path, sizeof path, "%s/golden-qwen3/%s/bf16.safetensors",
                         ROLLTOP_TEST_DATA, models[m]));
        CHECK_I64(st_open(path, &file, &fault), ERR_OK);
        for (size_t i = 0; file != NULL && i < st_count(file); i++) {
            const StTensor *wide = st_at(file, i);
            char name[256];
            if (wide->dtype != ST_F32) {
                continue;
            }
            CHECK(str_format(name, sizeof name, "%.*s.bf16", (int)(wide->name_n - 4), wide->name));
            const StTensor *narrow = st_find(file, name);
            size_t n = wide->bytes / 4;
            float *values = xcalloc(n, sizeof(float));
            CHECK_I64(st_read_f32(wide, 0, n, values), ERR_OK);
            size_t wrong = 0;
            for (size_t k = 0; k < n; k++) {
                uint16_t got = bf16_from_f32(values[k]);
                uint16_t want;
                if (narrow == NULL) {
                    wrong += !isnan(f32_from_bf16(got)) || !isnan(values[k]);
                    continue;
                }
                CHECK_I64(st_read_bytes(narrow, 2 * k, 2, &want), ERR_OK);
                bool nan_pair = isnan(values[k]) && isnan(f32_from_bf16(got));
                wrong += got != want && !nan_pair;
            }
            CHECK_I64(wrong, 0);
            pairs++;
            free(values);
        }
        CHECK(pairs >= 4);
        st_close(file);
    }
}

/* Every half, by the definition of the format: sign, five bits of exponent, ten of fraction. */
static void every_f16(void)
{
    int wrong = 0;
    for (int h = 0; h < 65536; h++) {
        int exponent = h >> 10 & 31, fraction = h & 0x3FF;
        float v = f32_from_f16((uint16_t)h);
        double want = exponent == 31 ? (double)INFINITY
                      : exponent > 0 ? ldexp(1024 + fraction, exponent - 25)
                                     : ldexp(fraction, -24);
        bool nan = exponent == 31 && fraction != 0;
        wrong += nan ? !isnan(v) : (double)v != (h & 0x8000 ? -want : want);
        wrong += !nan && (signbit(v) != 0) != ((h & 0x8000) != 0);
    }
    CHECK_I64(wrong, 0);
    CHECK_NEAR(f32_from_f16(0x3C00), 1.0, 0);
    CHECK_NEAR(f32_from_f16(0x0001), 0x1p-24, 0);
    CHECK_NEAR(f32_from_f16(0xC000), -2.0, 0);
}

static void write_and_read(const char *dir)
{
    char path[512];
    static const float f[6] = {1.5f, -2.0f, 0.0f, 3.0e38f, -0.0f, 1.0e-40f};
    static const uint16_t h[3] = {0x3F80, 0xC000, 0x7F80};
    StWriteTensor tensors[3] = {
        {.name = "b \"quoted\"", .dtype = ST_F32, .rank = 2, .shape = {2, 3}, .data = f},
        {.name = "a", .dtype = ST_BF16, .rank = 1, .shape = {3}, .data = h},
        {.name = "empty", .dtype = ST_F32, .rank = 1, .shape = {0}, .data = NULL},
    };
    static const char *const metadata[] = {"format", "pt", NULL};
    Fault fault = {0};
    StFile *file = NULL;
    CHECK(str_format(path, sizeof path, "%s/model.safetensors", dir));
    CHECK_I64(st_write(path, tensors, 3, metadata, &fault), ERR_OK);
    CHECK_I64(st_open(path, &file, &fault), ERR_OK);
    if (file == NULL) {
        return;
    }
    CHECK_I64(st_count(file), 3);
    CHECK_STR(st_at(file, 0)->name, "b \"quoted\"");
    CHECK_STR(st_metadata(file, "format"), "pt");
    const StTensor *b = st_find(file, "b \"quoted\"");
    unsigned char raw[sizeof f];
    CHECK(b != NULL && st_read_bytes(b, 0, sizeof f, raw) == ERR_OK);
    CHECK(memcmp(raw, f, sizeof f) == 0);
    CHECK_I64(st_read_bytes(b, 1, sizeof f, raw), ERR_ARG);
    CHECK_I64(st_read_bytes(b, SIZE_MAX, 1, raw), ERR_ARG);
    const StTensor *a = st_find(file, "a");
    float three[3];
    CHECK(a != NULL && st_read_f32(a, 0, 3, three) == ERR_OK);
    CHECK_NEAR(three[1], -2.0, 0);
    CHECK(isinf(three[2]));
    CHECK_I64(st_read_f32(a, 2, 2, three), ERR_ARG);
    CHECK_I64(b->at % 8, 0);
    /* Cut short while it is open: an error to report, not the end of the program. */
    CHECK_I64(truncate(path, (off_t)b->at + 2), 0);
    CHECK_I64(st_read_bytes(b, 0, 2, raw), ERR_OK);
    CHECK_I64(st_read_bytes(b, 0, sizeof f, raw), ERR_IO);
    CHECK_I64(st_read_f32(a, 0, 3, three), ERR_IO);
    st_close(file);
    CHECK_I64(st_open(path, &file, &fault), ERR_FORMAT);
    CHECK_I64(st_write(path, tensors, 3, metadata, &fault), ERR_OK);
    StSet *set = NULL;
    CHECK_I64(st_set_open(dir, &set, &fault), ERR_OK);
    CHECK(set != NULL && st_set_count(set) == 3 && st_set_find(set, "a") != NULL);
    CHECK(set != NULL && st_set_find(set, "missing") == NULL);
    st_set_close(set);
}

static void put(const char *dir, const char *name, const char *text)
{
    char *path = fs_join(dir, name);
    Fault fault = {0};
    CHECK_I64(fs_write_atomic(path, text, strlen(text), &fault), ERR_OK);
    free(path);
}

static void sharded(const char *dir)
{
    static const float one[1] = {1.0f};
    StWriteTensor x = {.name = "x", .dtype = ST_F32, .rank = 1, .shape = {1}, .data = one};
    StWriteTensor y = {.name = "y", .dtype = ST_F32, .rank = 1, .shape = {1}, .data = one};
    char path[512];
    Fault fault = {0};
    StSet *set = NULL;
    CHECK(str_format(path, sizeof path, "%s/one.safetensors", dir));
    CHECK_I64(st_write(path, &x, 1, NULL, &fault), ERR_OK);
    CHECK(str_format(path, sizeof path, "%s/two.safetensors", dir));
    CHECK_I64(st_write(path, &y, 1, NULL, &fault), ERR_OK);
    put(dir, "model.safetensors.index.json",
        "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"y\":\"two.safetensors\","
        "\"x\":\"one.safetensors\"}}");
    CHECK_I64(st_set_open(dir, &set, &fault), ERR_OK);
    CHECK(set != NULL && st_set_count(set) == 2 && st_set_find(set, "x") != NULL);
    st_set_close(set);
    put(dir, "model.safetensors.index.json", "{\"weight_map\":{\"z\":\"two.safetensors\"}}");
    CHECK_I64(st_set_open(dir, &set, &fault), ERR_FORMAT);
    CHECK(strstr(fault.sentence, "tensor z in two.safetensors") != NULL);
    fault_clear(&fault);
    put(dir, "model.safetensors.index.json", "{\"weight_map\":{\"z\":\"../two.safetensors\"}}");
    CHECK_I64(st_set_open(dir, &set, &fault), ERR_FORMAT);
    CHECK(strstr(fault.sentence, "no plain file name") != NULL);
    fault_clear(&fault);
    put(dir, "model.safetensors.index.json", "{\"weight_map\":{\"z\":\"three.safetensors\"}}");
    CHECK_I64(st_set_open(dir, &set, &fault), ERR_NOT_FOUND);
    CHECK(strstr(fault.sentence, "three.safetensors") != NULL);
}

static void on_disk(void)
{
    char single[] = "/tmp/rolltop-st-XXXXXX";
    char shards[] = "/tmp/rolltop-st-XXXXXX";
    Fault fault = {0};
    CHECK(mkdtemp(single) != NULL && mkdtemp(shards) != NULL);
    StSet *set = NULL;
    CHECK_I64(st_set_open(single, &set, &fault), ERR_NOT_FOUND);
    CHECK(strstr(fault.sentence, single) != NULL);
    fault_clear(&fault);
    write_and_read(single);
    sharded(shards);
    CHECK_I64(st_write("/nonexistent/x.safetensors", NULL, 0, NULL, &fault), ERR_IO);
    CHECK(strstr(fault.sentence, "/nonexistent/") != NULL);
    fault_clear(&fault);
    CHECK_I64(fs_remove_tree(single, &fault), ERR_OK);
    CHECK_I64(fs_remove_tree(shards, &fault), ERR_OK);
}

int main(void)
{
    RUN(verdicts);
    RUN(names_with_nul);
    RUN(bf16_golden);
    RUN(every_f16);
    RUN(on_disk);
    return test_end();
}
