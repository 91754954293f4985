/* Deltas damaged on their way: in their tensors' frames, in the file around them, in their index. A
 * frame is refused or its sum tells; a pull brings the published policy or leaves the copy as it
 * was, whatever byte changed, was lost or came in. */
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/model/weights.h"
#include "core/policy/artifact.h"
#include "core/policy/delta.h"
#include "tests/harness.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#define GOLDEN ROLLTOP_TEST_DATA "/golden-qwen3/tied"
enum { PULLS = 40 }; /* of each file */

static char root[] = "/tmp/rolltop-damage-XXXXXX";
static Rng rng;

/* ---- frames ------------------------------------------------------------------------------- */

typedef struct Case {
    DeltaEncoding encoding;
    size_t n;
    unsigned char *before, *after;
    DeltaFrame frame;
} Case;

/* Of the exact size on the heap, so that the sanitizer sees a step beyond either end. */
static void try_frame(DeltaScratch *scratch, const Case *c, const unsigned char *bytes, size_t n)
{
    unsigned char *frame = xcalloc(1, n + 1);
    unsigned char *copy = xcalloc(1, c->n);
    char sum[DELTA_SUM_TEXT] = "";
    memcpy(frame + 1, bytes, n);
    memcpy(copy, c->before, c->n);
    const Err err = delta_apply(scratch, c->encoding, frame + 1, n, copy, c->n,
                                DELTA_SUM_XXH3_128, sum, NULL);
    const bool right = memcmp(copy, c->after, c->n) == 0;
    CHECK(err == ERR_OK || err == ERR_FORMAT);
    CHECK(err != ERR_OK || (strcmp(sum, c->frame.sum) == 0) == right);
    free(frame);
    free(copy);
}

static void damage_frames(DeltaEncoding encoding, size_t n, size_t every)
{
    DeltaScratch *scratch = delta_scratch_new();
    Case c = {.encoding = encoding, .n = n, .before = xcalloc(1, n), .after = xcalloc(1, n)};
    for (size_t i = 0; i < n; i++) {
        c.before[i] = (unsigned char)rng_below(&rng, 256);
        c.after[i] = rng_below(&rng, 9) == 0 ? (unsigned char)rng_below(&rng, 256) : c.before[i];
    }
    c.after[0] ^= 1; /* something did change */
    CHECK_I64(delta_encode(scratch, encoding, c.before, c.after, n, DELTA_SUM_XXH3_128, &c.frame,
                           NULL), ERR_OK);
    unsigned char *bytes = c.frame.bytes;
    const size_t step = 1 + c.frame.n / 1500;
    for (size_t at = 0; at < c.frame.n; at += at < 64 ? 1 : step) {
        const unsigned char was = bytes[at];
        bytes[at] = (unsigned char)(was ^ (1u << rng_below(&rng, 8)));
        try_frame(scratch, &c, bytes, c.frame.n);
        bytes[at] = (unsigned char)rng_below(&rng, 256);
        try_frame(scratch, &c, bytes, c.frame.n);
        bytes[at] = was;
        if (at % every == 0) {
            try_frame(scratch, &c, bytes, at);
        }
    }
    unsigned char *twice = xcalloc(1, 2 * c.frame.n); /* a second frame behind the first */
    memcpy(twice, bytes, c.frame.n);
    memcpy(twice + c.frame.n, bytes, c.frame.n);
    try_frame(scratch, &c, twice, 2 * c.frame.n);
    free(twice);
    free(bytes);
    free(c.before);
    free(c.after);
    delta_scratch_free(scratch);
}

static void frames(void)
{
    for (int e = DELTA_XOR; e <= DELTA_OVERWRITE; e++) {
        damage_frames((DeltaEncoding)e, 1, 1);
        damage_frames((DeltaEncoding)e, 700, 1);
        damage_frames((DeltaEncoding)e, 300001, 7); /* some blocks, and a part of one */
    }
}

/* ---- files -------------------------------------------------------------------------------- */

static char *at(const char *name)
{
    return fs_join(root, name);
}

static void digest_of(const char *dir, char out[DIGEST_TEXT])
{
    Artifact artifact;
    Fault fault = {0};
    CHECK_I64(artifact_check(dir, NULL, 1e9, &artifact, &fault), ERR_OK);
    (void)str_format(out, DIGEST_TEXT, "%s", artifact.digest);
    artifact_free(&artifact);
}

/* Version 1 complete, 2 a delta on it. */
static char *chain_new(DeltaEncoding encoding, char digests[3][DIGEST_TEXT])
{
    ModelConfig config;
    DeltaStats stats;
    char *chain = at("policies/chain");
    char *dirs[3] = {NULL, at("policies/v000001"), at("policies/v000002")};
    CHECK_I64(model_config_load(GOLDEN, &config, NULL), ERR_OK);
    for (int v = 1; v <= 2; v++) {
        CHECK_I64(fs_mkdirs(dirs[v], 0755, NULL), ERR_OK);
        CHECK_I64(weights_init_random(&config, (uint64_t)v, dirs[v], NULL), ERR_OK);
        digest_of(dirs[v], digests[v]);
    }
    CHECK_I64(delta_publish_full(chain, 1, "v000001", NULL), ERR_OK);
    DeltaProof proof = {digests[1], digests[2]};
    CHECK_I64(delta_publish(dirs[1], dirs[2], chain, 2, 1, encoding, DELTA_SUM_XXH3_128, &proof,
                            &stats, NULL), ERR_OK);
    free(dirs[1]);
    free(dirs[2]);
    return chain;
}

/* One damage: a bit, a byte, a piece that is lost or doubled, an end that is cut. */
static void damage(Text *bytes)
{
    /* Headers and indexes are at the beginning: half of the time there. */
    const size_t reach = rng_below(&rng, 2) && bytes->n > 400 ? 400 : bytes->n;
    const size_t from = (size_t)rng_below(&rng, reach);
    const size_t piece = 1 + (size_t)rng_below(&rng, 9);
    const size_t n = piece < bytes->n - from ? piece : bytes->n - from;
    char copy[16];
    switch (rng_below(&rng, 5)) {
    case 0: bytes->p[from] = (char)(bytes->p[from] ^ (1 << rng_below(&rng, 7))); break;
    case 1: bytes->p[from] = "0123456789{}[]\",:x"[rng_below(&rng, 18)]; break;
    case 2: bytes->n = from; break;
    case 3:
        memmove(bytes->p + from, bytes->p + from + n, bytes->n - from - n);
        bytes->n -= n;
        break;
    default:
        memcpy(copy, bytes->p + from, n);
        CHECK(text_add(bytes, copy, n)); /* room for what moves up */
        memmove(bytes->p + from + n, bytes->p + from, bytes->n - from - n);
        memcpy(bytes->p + from, copy, n);
        break;
    }
}

/* What a copy says of itself. */
static int64_t version_of(const char *copy)
{
    Text text;
    int64_t version = -1;
    char *path = fs_join(copy, ".weight_sync/state.json");
    text_init(&text, 4096);
    CHECK_I64(fs_read(path, &text, NULL), ERR_OK);
    const char *number = strstr(text_c(&text), ": \"");
    CHECK(number != NULL && str_to_i64((Str){number + 3, 6}, &version));
    text_free(&text);
    free(path);
    return version;
}

/* A pull from the chain as it lies there now, onto a copy of version 1. */
static bool pull(const char *chain, const char *copy, char digests[3][DIGEST_TEXT])
{
    int64_t applied = -1;
    char digest[DIGEST_TEXT];
    Fault fault = {0};
    CHECK_I64(fs_remove_tree(copy, NULL), ERR_OK);
    CHECK_I64(delta_pull(chain, "", copy, 1, &applied, &fault), ERR_OK);
    const Err err = delta_pull(chain, "", copy, 2, &applied, &fault);
    CHECK_I64(applied, err == ERR_OK ? 2 : 1);
    CHECK_I64(version_of(copy), applied);
    CHECK(err == ERR_OK || fault.sentence[0] != '\0');
    digest_of(copy, digest);
    CHECK_STR(digest, digests[applied == 2 ? 2 : 1]);
    return err == ERR_OK;
}

static void damage_file(const char *path, const char *chain, const char *copy,
                        char digests[3][DIGEST_TEXT])
{
    Text whole;
    int refused = 0;
    text_init(&whole, 64 << 20);
    CHECK_I64(fs_read(path, &whole, NULL), ERR_OK);
    for (int i = 0; i < PULLS; i++) {
        Text bytes;
        text_init(&bytes, 64 << 20);
        CHECK(text_add_str(&bytes, text_str(&whole)));
        damage(&bytes);
        CHECK_I64(fs_write_atomic(path, bytes.p, bytes.n, NULL), ERR_OK);
        refused += !pull(chain, copy, digests);
        text_free(&bytes);
    }
    CHECK(refused > 0); /* else nothing of it is read */
    CHECK_I64(unlink(path), 0);
    CHECK(!pull(chain, copy, digests));
    CHECK_I64(fs_write_atomic(path, whole.p, whole.n, NULL), ERR_OK);
    CHECK(pull(chain, copy, digests));
    text_free(&whole);
}

static void files(void)
{
    for (int e = DELTA_XOR; e <= DELTA_OVERWRITE; e++) {
        char digests[3][DIGEST_TEXT];
        char *chain = chain_new((DeltaEncoding)e, digests);
        char *copy = at("copy");
        char *version = fs_join(chain, "weight_v000002");
        int count = 0;
        DIR *dir = opendir(version);
        CHECK(dir != NULL);
        for (struct dirent *entry; dir && (entry = readdir(dir)) != NULL;) {
            if (str_ends(str_from(entry->d_name), STR(".safetensors")) ||
                strcmp(entry->d_name, "model.safetensors.index.json") == 0) {
                char *path = fs_join(version, entry->d_name);
                damage_file(path, chain, copy, digests);
                free(path);
                count++;
            }
        }
        CHECK(count >= 2);
        if (dir) {
            (void)closedir(dir);
        }
        CHECK_I64(fs_remove_tree(chain, NULL), ERR_OK);
        free(version);
        free(copy);
        free(chain);
    }
}

int main(void)
{
    CHECK(mkdtemp(root) != NULL);
    rng_seed(&rng, 20261130);
    RUN(frames);
    RUN(files);
    CHECK_I64(fs_remove_tree(root, NULL), ERR_OK);
    return test_end();
}
