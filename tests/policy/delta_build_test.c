/* A chain as a run keeps it: one complete version, deltas on it, the digests that prove both ends.
 * What is built from it is the published policy, and a copy that is not the base is left alone. */
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/model/weights.h"
#include "core/policy/artifact.h"
#include "core/policy/delta.h"
#include "tests/harness.h"

#include <stdlib.h>
#include <unistd.h>

#define GOLDEN ROLLTOP_TEST_DATA "/golden-qwen3/tied"
enum { VERSIONS = 4 }; /* 1 complete, 2 to 4 deltas */

static char root[] = "/tmp/rolltop-build-XXXXXX";
static char *chain, *dirs[VERSIONS + 1];
static char digests[VERSIONS + 1][DIGEST_TEXT];

static char *at(const char *name)
{
    return fs_join(root, name);
}

/* Flips a bit of a file's last byte, which is a weight's. */
static void damage(const char *dir)
{
    char *path = fs_join(dir, "model.safetensors");
    FILE *file = fopen(path, "r+b");
    CHECK(file != NULL);
    if (file) {
        CHECK(fseek(file, -1, SEEK_END) == 0);
        int c = fgetc(file);
        CHECK(fseek(file, -1, SEEK_END) == 0);
        CHECK(fputc(c ^ 1, file) != EOF);
        CHECK(fclose(file) == 0);
    }
    free(path);
}

static void digest_of(const char *dir, char out[DIGEST_TEXT])
{
    Artifact artifact;
    Fault fault = {0};
    CHECK_I64(artifact_check(dir, NULL, 1e9, &artifact, &fault), ERR_OK);
    snprintf(out, DIGEST_TEXT, "%s", artifact.digest);
    artifact_free(&artifact);
}

static void publish_chain(void)
{
    ModelConfig config;
    CHECK_I64(model_config_load(GOLDEN, &config, NULL), ERR_OK);
    chain = at("policies/chain");
    for (int v = 1; v <= VERSIONS; v++) {
        char name[32];
        Fault fault = {0};
        snprintf(name, sizeof name, "policies/v%06d", v);
        dirs[v] = at(name);
        CHECK_I64(fs_mkdirs(dirs[v], 0755, NULL), ERR_OK);
        CHECK_I64(weights_init_random(&config, (uint64_t)v, dirs[v], NULL), ERR_OK);
        digest_of(dirs[v], digests[v]);
        if (v == 1) {
            CHECK_I64(delta_publish_full(chain, 1, "v000001", &fault), ERR_OK);
            continue;
        }
        DeltaStats stats;
        DeltaProof proof = {digests[v - 1], digests[v]};
        CHECK_I64(delta_publish(dirs[v - 1], dirs[v], chain, v, v - 1,
                                v % 2 ? DELTA_XOR : DELTA_OVERWRITE, DELTA_SUM_XXH3_128, &proof,
                                &stats, &fault), ERR_OK);
        CHECK_I64(stats.base, v - 1);
    }
}

static void test_versions_are_built(void)
{
    char *out = at("built");
    char digest[DIGEST_TEXT];
    Fault fault = {0};
    for (int v = 1; v <= VERSIONS; v++) {
        CHECK(delta_reachable(chain, v));
        CHECK_I64(delta_build(chain, v, out, &fault), ERR_OK);
        digest_of(out, digest);
        CHECK_STR(digest, digests[v]);
        CHECK_I64(fs_remove_tree(out, NULL), ERR_OK);
    }
    CHECK(!delta_reachable(chain, VERSIONS + 1));
    CHECK(delta_build(chain, VERSIONS + 1, out, &fault) != ERR_OK);
    CHECK(!fs_exists(out));
    free(out);
}

/* The copy's changed tensors would pass their sums: only the digest of all of it can tell. */
static void test_a_copy_that_is_not_the_base_is_left_alone(void)
{
    char *copy = at("copy");
    char digest[DIGEST_TEXT];
    char after[DIGEST_TEXT];
    int64_t applied = -1;
    Fault fault = {0};
    CHECK_I64(delta_pull(chain, "", copy, 2, &applied, &fault), ERR_OK);
    CHECK_I64(applied, 2);
    damage(copy);
    digest_of(copy, digest);
    CHECK_I64(delta_pull(chain, "", copy, 3, &applied, &fault), ERR_STATE);
    CHECK(strstr(fault.sentence, "is not the base of delta 000003") != NULL);
    CHECK_I64(applied, 2);
    digest_of(copy, after);
    CHECK_STR(after, digest);
    damage(copy); /* as it was */
    CHECK_I64(delta_pull(chain, "", copy, VERSIONS, &applied, &fault), ERR_OK);
    digest_of(copy, digest);
    CHECK_STR(digest, digests[VERSIONS]);
    free(copy);
}

/* A complete version that changed on disk since: nothing is built from it, nothing stays behind. */
static void test_a_damaged_chain_builds_nothing(void)
{
    char *out = at("built");
    Fault fault = {0};
    damage(dirs[1]);
    CHECK_I64(delta_build(chain, 3, out, &fault), ERR_STATE);
    CHECK(!fs_exists(out));
    char *partial = xasprintf("%s.tmp-%lld", out, (long long)getpid());
    CHECK(!fs_exists(partial));
    free(partial);
    damage(dirs[1]);
    CHECK_I64(delta_build(chain, 3, out, &fault), ERR_OK);
    free(out);
}

int main(void)
{
    if (!mkdtemp(root)) {
        return 1;
    }
    RUN(publish_chain);
    RUN(test_versions_are_built);
    RUN(test_a_copy_that_is_not_the_base_is_left_alone);
    RUN(test_a_damaged_chain_builds_nothing);
    free(chain);
    for (int v = 1; v <= VERSIONS; v++) {
        free(dirs[v]);
    }
    (void)fs_remove_tree(root, NULL);
    return test_end();
}
