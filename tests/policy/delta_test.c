/* Weight deltas against vectors made by slime's own code (tests/data/delta-vectors.json). */
#include "core/policy/delta.h"

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/model/safetensors.h"
#include "tests/harness.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

static cJSON *vectors;
static char root[] = "/tmp/rolltop-delta-XXXXXX";
static DeltaScratch *scratch; /* one for all, as it is used */

typedef struct Bytes {
    unsigned char *p;
    size_t n;
} Bytes;

static Bytes from_hex(const char *hex)
{
    Bytes out = {xcalloc(strlen(hex) / 2 + 1, 1), strlen(hex) / 2};
    for (size_t i = 0; i < out.n; i++) {
        unsigned v = 0;
        CHECK(sscanf(hex + 2 * i, "%2x", &v) == 1);
        out.p[i] = (unsigned char)v;
    }
    return out;
}

static Bytes from_base64(const char *text)
{
    static const char digits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    Bytes out = {xcalloc(strlen(text) + 4, 1), 0};
    uint32_t bits = 0;
    int have = 0;
    for (const char *c = text; *c && *c != '='; c++) {
        const char *at = strchr(digits, *c);
        bits = bits << 6 | (uint32_t)(at ? at - digits : 0);
        have += 6;
        if (have >= 8) {
            have -= 8;
            out.p[out.n++] = (unsigned char)(bits >> have);
        }
    }
    return out;
}

static void check_vector(const cJSON *item)
{
    Bytes before = from_hex(json_string(item, "old_hex", ""));
    Bytes after = from_hex(json_string(item, "new_hex", ""));
    static const char *const frames[] = {"xor_zstd_hex", "overwrite_zstd_hex"};
    bool emitted = json_bool(item, "emitted", true);
    for (int e = DELTA_XOR; e <= DELTA_OVERWRITE; e++) {
        DeltaFrame frame;
        char sum[DELTA_SUM_TEXT];
        CHECK(delta_encode(scratch, (DeltaEncoding)e, before.p, after.p, after.n,
                           DELTA_SUM_XXH3_128, &frame, NULL) == ERR_OK);
        CHECK_I64(frame.changed, json_i64(item, "changed_bytes", -1));
        CHECK((frame.bytes != NULL) == emitted);
        const char *wanted = json_string(json_get(item, "checksum_of_new"), "xxh3-128", "");
        const char *theirs = json_string(item, frames[e], NULL);
        unsigned char *copy = xcalloc(before.n + 1, 1);
        if (frame.bytes) { /* ours, applied by us */
            memcpy(copy, before.p, before.n);
            CHECK(delta_apply(scratch, (DeltaEncoding)e, frame.bytes, frame.n, copy, before.n,
                              DELTA_SUM_XXH3_128, sum, NULL) == ERR_OK);
            CHECK(memcmp(copy, after.p, after.n) == 0);
            CHECK_STR(frame.sum, wanted);
            CHECK_STR(sum, wanted);
        }
        if (theirs && emitted) { /* theirs, applied by us */
            Bytes their = from_hex(theirs);
            memcpy(copy, before.p, before.n);
            CHECK(delta_apply(scratch, (DeltaEncoding)e, their.p, their.n, copy, before.n,
                              DELTA_SUM_XXH3_128, sum, NULL) == ERR_OK);
            CHECK(memcmp(copy, after.p, after.n) == 0);
            CHECK_STR(sum, wanted);
            free(their.p);
        }
        free(copy);
        free(frame.bytes);
    }
    const cJSON *sums = json_get(item, "checksum_of_new");
    char text[DELTA_SUM_TEXT];
    delta_sum(DELTA_SUM_XXH3_128, after.p, after.n, text);
    CHECK_STR(text, json_string(sums, "xxh3-128", ""));
    delta_sum(DELTA_SUM_ADLER32, after.p, after.n, text);
    CHECK_STR(text, json_string(sums, "adler32", ""));
    free(before.p);
    free(after.p);
}

static void test_encodings(void)
{
    int seen = 0;
    for (const cJSON *item = json_get(vectors, "encodings")->child; item; item = item->next) {
        check_vector(item);
        seen++;
    }
    CHECK(seen >= 6);
}

static void write_files(const cJSON *files, const char *dir)
{
    CHECK(fs_mkdirs(dir, 0755, NULL) == ERR_OK);
    for (const cJSON *item = files->child; item; item = item->next) {
        Bytes bytes = from_base64(item->valuestring);
        char *path = fs_join(dir, item->string);
        CHECK(fs_write_atomic(path, bytes.p, bytes.n, NULL) == ERR_OK);
        free(path);
        free(bytes.p);
    }
}

static void check_tensors(const char *dir, const cJSON *expected)
{
    StSet *set = NULL;
    CHECK(st_set_open(dir, &set, NULL) == ERR_OK);
    for (const cJSON *item = expected->child; item && set; item = item->next) {
        Bytes want = from_hex(item->valuestring);
        const StTensor *tensor = st_set_find(set, item->string);
        unsigned char got[256];
        CHECK(tensor && tensor->bytes == want.n && want.n <= sizeof got &&
              st_read_bytes(tensor, 0, want.n, got) == ERR_OK && memcmp(got, want.p, want.n) == 0);
        free(want.p);
    }
    st_set_close(set);
}

static void test_chain(void)
{
    const cJSON *chain = json_get(vectors, "chain");
    char *base = xasprintf("%s/base", root);
    char *source = xasprintf("%s/source", root);
    char *local = xasprintf("%s/local", root);
    write_files(json_get(chain, "base_files_b64"), base);
    for (const cJSON *v = json_get(chain, "versions")->child; v; v = v->next) {
        char *dir = fs_join(source, v->string);
        write_files(v, dir);
        free(dir);
    }
    for (const cJSON *step = json_get(chain, "pulls")->child; step; step = step->next) {
        int64_t applied = -1;
        Fault fault = {0};
        Err err = delta_pull(source, base, local, json_i64(step, "target_version", 0), &applied,
                             &fault);
        CHECK((err == ERR_OK) == json_bool(step, "ok", false));
        if (err != ERR_OK) {
            CHECK(strstr(fault.sentence, "published weight version missing") != NULL);
        }
        const cJSON *after = json_get(step, "after");
        CHECK_I64(applied, json_i64(after, "applied", -1));
        check_tensors(local, json_get(after, "tensors_hex"));
    }
    free(base);
    free(source);
    free(local);
}

static void write_model(const char *dir, const float *a, const float *b, size_t n)
{
    CHECK(fs_mkdirs(dir, 0755, NULL) == ERR_OK);
    StWriteTensor tensors[] = {
        {.name = "a", .dtype = ST_F32, .rank = 1, .shape = {(int64_t)n}, .data = a},
        {.name = "b", .dtype = ST_F32, .rank = 1, .shape = {(int64_t)n}, .data = b}};
    char *path = fs_join(dir, "model.safetensors");
    CHECK(st_write(path, tensors, 2, NULL, NULL) == ERR_OK);
    free(path);
}

static bool same_file(const char *x, const char *y)
{
    const char *dirs[] = {x, y};
    Text texts[2];
    for (int i = 0; i < 2; i++) {
        char *path = fs_join(dirs[i], "model.safetensors");
        text_init(&texts[i], 1 << 20);
        CHECK(fs_read(path, &texts[i], NULL) == ERR_OK);
        free(path);
    }
    bool same = str_equal(text_str(&texts[0]), text_str(&texts[1]));
    text_free(&texts[0]);
    text_free(&texts[1]);
    return same;
}

enum { N = 4096 };

/* v1 from base by `encoding`; local follows; a wrong base is refused and stays as it was. */
static void round_trip(DeltaEncoding encoding, DeltaSum sum, const char *name)
{
    char *dir[5];
    static const char *const parts[] = {"base", "new", "other", "source", "local"};
    for (int i = 0; i < 5; i++) {
        dir[i] = xasprintf("%s/%s-%s", root, name, parts[i]);
    }
    float *a = xcalloc(N, sizeof *a);
    float *b = xcalloc(N, sizeof *b);
    Rng rng;
    rng_seed(&rng, 7);
    for (int i = 0; i < N; i++) {
        a[i] = (float)rng_normal(&rng);
        b[i] = (float)rng_normal(&rng);
    }
    write_model(dir[0], a, b, N);
    b[17] += 1.0F;
    write_model(dir[2], a, b, N);
    b[17] -= 1.0F;
    for (int i = 0; i < N; i += 100) {
        b[i] += 0.001F;
    }
    write_model(dir[1], a, b, N);
    DeltaStats stats;
    CHECK(delta_publish(dir[0], dir[1], dir[3], 1, 0, encoding, sum, NULL, &stats,
                        NULL) == ERR_OK);
    CHECK_I64(stats.tensors, 2);
    CHECK_I64(stats.changed_tensors, 1);
    CHECK(stats.changed_bytes >= 41 && stats.changed_bytes <= 4 * 41);
    int64_t applied = -1;
    CHECK(delta_pull(dir[3], dir[0], dir[4], 1, &applied, NULL) == ERR_OK);
    CHECK_I64(applied, 1);
    CHECK(same_file(dir[4], dir[1]));
    Fault fault = {0};
    char *wrong = xasprintf("%s/%s-wrong", root, name);
    if (encoding == DELTA_XOR) { /* overwrite carries every changed byte but this one */
        b[17] += 1.0F;
    }
    CHECK(delta_pull(dir[3], dir[2], wrong, 1, &applied, &fault) == ERR_STATE);
    CHECK(strstr(fault.sentence, "checksum mismatch of tensor b") != NULL);
    CHECK_I64(applied, 0);
    CHECK(same_file(wrong, dir[2]));
    fault_clear(&fault);
    CHECK(delta_pull(dir[3], dir[2], wrong, 1, &applied, &fault) == ERR_STATE); /* again, safely */
    CHECK(same_file(wrong, dir[2]));
    free(wrong);
    free(a);
    free(b);
    for (int i = 0; i < 5; i++) {
        free(dir[i]);
    }
}

static void test_round_trips(void)
{
    round_trip(DELTA_XOR, DELTA_SUM_XXH3_128, "xor");
    round_trip(DELTA_OVERWRITE, DELTA_SUM_ADLER32, "overwrite");
}

/* Any mix of sparse and dense stretches, over the borders of the frame's blocks and pieces. */
static void test_xor_frames(void)
{
    enum { MOST = (9 << 20) + 77 };
    static const size_t sizes[] = {1, 63, 64, 4096, (1 << 17) - 1, 1 << 17, (1 << 17) + 1,
                                   (1 << 20) + 5, 8 << 20, MOST};
    unsigned char *before = xcalloc(MOST, 3);
    unsigned char *after = before + MOST;
    unsigned char *copy = after + MOST;
    Rng rng;
    rng_seed(&rng, 4);
    for (int turn = 0; turn < 60; turn++) {
        size_t n = sizes[(size_t)turn % (sizeof sizes / sizeof *sizes)];
        uint64_t differ = 0;
        uint64_t every = UINT64_C(1) << (turn / 3 % 20); /* from each byte to hardly any */
        for (size_t i = 0; i < n; i++) {
            bool quiet = (i >> 18) % 2 == 1; /* stretches without any change */
            bool change = !quiet && rng_below(&rng, every) == 0;
            before[i] = (unsigned char)rng_below(&rng, 256);
            after[i] = change ? (unsigned char)(before[i] ^ (1 + rng_below(&rng, 255)))
                              : before[i];
            differ += change;
        }
        DeltaFrame frame;
        char sum[DELTA_SUM_TEXT];
        char wanted[DELTA_SUM_TEXT];
        const DeltaSum kind = turn % 2 ? DELTA_SUM_XXH3_128 : DELTA_SUM_ADLER32;
        CHECK_I64(delta_encode(scratch, DELTA_XOR, before, after, n, kind, &frame, NULL), ERR_OK);
        CHECK_I64((int64_t)frame.changed, (int64_t)differ);
        CHECK(!frame.bytes == (differ == 0));
        if (frame.bytes) { /* by zstd itself, as slime's reader does it */
            CHECK_I64((int64_t)ZSTD_getFrameContentSize(frame.bytes, frame.n), (int64_t)n);
            CHECK_I64((int64_t)ZSTD_decompress(copy, n, frame.bytes, frame.n), (int64_t)n);
            bool same = true;
            for (size_t i = 0; i < n && same; i++) {
                same = copy[i] == (before[i] ^ after[i]);
            }
            CHECK(same);
            memcpy(copy, before, n);
            CHECK_I64(delta_apply(scratch, DELTA_XOR, frame.bytes, frame.n, copy, n, kind, sum,
                                  NULL), ERR_OK);
            CHECK(memcmp(copy, after, n) == 0);
            delta_sum(kind, after, n, wanted);
            CHECK_STR(sum, wanted);
            CHECK_STR(frame.sum, wanted);
        }
        free(frame.bytes);
    }
    free(before);
}

/* Frames that others made, of bytes of which most stand `apart` bytes behind others of the same
 * value: with windows of megabytes, with a checksum of zstd's and without. */
static void foreign_frames(size_t size, size_t apart)
{
    static const int levels[] = {-5, 1, 3, 9};
    unsigned char *before = xcalloc(size, 4);
    unsigned char *after = before + size;
    unsigned char *copy = after + size;
    unsigned char *payload = copy + size;
    const size_t bound = ZSTD_compressBound(size);
    unsigned char *frame = xcalloc(bound, 1);
    Rng rng;
    rng_seed(&rng, 11);
    for (size_t i = 0; i < size; i++) {
        const bool fresh = i < apart || rng_below(&rng, 1000) == 0;
        const bool quiet = rng_below(&rng, 3) > 0;
        payload[i] = !fresh ? payload[i - apart]
                     : quiet ? 0 : (unsigned char)rng_below(&rng, 256);
        before[i] = (unsigned char)rng_below(&rng, 256);
        after[i] = before[i] ^ payload[i];
    }
    char wanted[DELTA_SUM_TEXT];
    delta_sum(DELTA_SUM_XXH3_128, after, size, wanted);
    for (size_t i = 0; i < 2 * sizeof levels / sizeof *levels; i++) {
        ZSTD_CCtx *zstd = ZSTD_createCCtx();
        char sum[DELTA_SUM_TEXT];
        (void)ZSTD_CCtx_setParameter(zstd, ZSTD_c_compressionLevel, levels[i / 2]);
        (void)ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, (int)i % 2);
        const size_t n = ZSTD_compress2(zstd, frame, bound, payload, size);
        ZSTD_freeCCtx(zstd);
        CHECK(!ZSTD_isError(n) && (levels[i / 2] < 9 || n < size / 3)); /* from far behind */
        memcpy(copy, before, size);
        CHECK_I64(delta_apply(scratch, DELTA_XOR, frame, n, copy, size, DELTA_SUM_XXH3_128, sum,
                              NULL), ERR_OK);
        CHECK(memcmp(copy, after, size) == 0);
        CHECK_STR(sum, wanted);
        CHECK_I64(delta_apply(scratch, DELTA_XOR, frame, n - 1, copy, size, DELTA_SUM_XXH3_128,
                              sum, NULL), ERR_FORMAT);
        frame[n / 2] ^= 0x55; /* refused, or another sum: never the right one by chance */
        memcpy(copy, before, size);
        const Err err = delta_apply(scratch, DELTA_XOR, frame, n, copy, size, DELTA_SUM_XXH3_128,
                                    sum, NULL);
        CHECK(err == ERR_FORMAT || strcmp(sum, wanted) != 0);
    }
    free(frame);
    free(before);
}

/* What is read must never depend on where the ring begins anew: not with windows much longer than
 * a block, nor when all of the tensor lies in the window and its last block begins in the ring's
 * last one. */
static void test_foreign_frames(void)
{
    foreign_frames((6 << 20) + 13, (3 << 20) / 2 + 5);
    foreign_frames(250000, 140000);
}

static void test_damage_is_refused(void)
{
    unsigned char before[300];
    unsigned char after[300];
    memset(before, 1, sizeof before);
    memcpy(after, before, sizeof after);
    after[3] = after[250] = 9;
    for (int e = DELTA_XOR; e <= DELTA_OVERWRITE; e++) {
        DeltaFrame frame;
        char sum[DELTA_SUM_TEXT];
        const DeltaSum kind = DELTA_SUM_XXH3_128;
        CHECK(delta_encode(scratch, (DeltaEncoding)e, before, after, sizeof after, kind, &frame,
                           NULL)
              == ERR_OK);
        unsigned char copy[300];
        memcpy(copy, before, sizeof copy);
        const struct { const void *bytes; size_t n, tensor; } bad[] = {
            {frame.bytes, frame.n - 1, 300}, {"zstd?", 5, 300}, {frame.bytes, frame.n, 200}};
        for (int i = 0; i < 3; i++) {
            CHECK_I64(delta_apply(scratch, (DeltaEncoding)e, bad[i].bytes, bad[i].n, copy,
                                  bad[i].tensor, kind, sum, NULL), ERR_FORMAT);
        }
        free(frame.bytes);
    }
    DeltaSum sum;
    DeltaEncoding encoding;
    Fault fault = {0};
    CHECK(delta_sum_parse("blake3", &sum, &fault) == ERR_UNSUPPORTED);
    CHECK(strstr(fault.sentence, "blake3") != NULL);
    CHECK(delta_encoding_parse("rle", &encoding, NULL) == ERR_UNSUPPORTED);
}

int main(void)
{
    Text text;
    text_init(&text, 16 << 20);
    if (!mkdtemp(root) || fs_read(ROLLTOP_TEST_DATA "/delta-vectors.json", &text, NULL) ||
        json_parse(text_str(&text), 16 << 20, "delta-vectors.json", &vectors, NULL)) {
        return 1;
    }
    scratch = delta_scratch_new();
    RUN(test_encodings);
    RUN(test_chain);
    RUN(test_round_trips);
    RUN(test_xor_frames);
    RUN(test_foreign_frames);
    RUN(test_damage_is_refused);
    delta_scratch_free(scratch);
    cJSON_Delete(vectors);
    text_free(&text);
    (void)fs_remove_tree(root, NULL);
    return test_end();
}
