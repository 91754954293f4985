/* Complete checkpoints from a chain of deltas: for engines that cannot follow one, for a roll-back
 * to a version that is kept as a delta, and for whoever wants to look at it. */
#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/model/checkpoint.h"
#include "core/model/digest.h"
#include "core/policy/delta_index.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool delta_reachable(const char *chain, int64_t version)
{
    bool delta = true;
    for (int64_t v = version; v >= 0 && delta; v--) {
        char *dir = delta_version_dir(chain, v);
        DeltaIndex index = {0};
        bool there = fs_is_dir(dir) && delta_index_read(dir, &index, NULL) == ERR_OK;
        delta = index.delta;
        cJSON_Delete(index.json);
        free(dir);
        if (!there) {
            return false;
        }
    }
    return !delta;
}

/* The published digest, empty where none is named. */
static Err published_digest(const char *chain, int64_t version, char out[DIGEST_TEXT],
                            Fault *fault)
{
    char *dir = delta_version_dir(chain, version);
    DeltaIndex index;
    Err err = delta_index_read(dir, &index, fault);
    (void)snprintf(out, DIGEST_TEXT, "%s", index.delta && index.digest ? index.digest : "");
    cJSON_Delete(index.json);
    free(dir);
    return err;
}

static Err prove(const char *dir, int64_t version, const char *wanted, Fault *fault)
{
    char digest[DIGEST_TEXT];
    ModelConfig config;
    StSet *set = NULL;
    if (!wanted[0]) {
        return ERR_OK;
    }
    Err err = model_config_load(dir, &config, fault);
    err = err ? err : checkpoint_open(dir, &config, &set, fault);
    err = err ? err : checkpoint_digest(set, &config, digest, fault);
    if (err == ERR_OK && strcmp(digest, wanted) != 0) {
        err = fault_set(fault, ERR_STATE, "publish it again",
                        "the deltas that lead to v%lld give digest %s, it was published as %s",
                        (long long)version, digest, wanted);
    }
    st_set_close(set);
    return err;
}

Err delta_build(const char *chain, int64_t version, const char *dir, Fault *fault)
{
    char *partial = xasprintf("%s.tmp-%lld", dir, (long long)getpid());
    char *sync = fs_join(partial, ".weight_sync");
    char wanted[DIGEST_TEXT];
    int64_t applied = -1;
    Err err = fs_remove_tree(partial, fault);
    err = err ? err : published_digest(chain, version, wanted, fault);
    err = err ? err : delta_pull(chain, "", partial, version, &applied, fault);
    err = err ? err : fs_remove_tree(sync, fault);
    err = err ? err : prove(partial, version, wanted, fault);
    if (err == ERR_OK && rename(partial, dir) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s cannot be put in place", dir);
    }
    if (err != ERR_OK) {
        (void)fs_remove_tree(partial, NULL);
    }
    free(sync);
    free(partial);
    return err;
}
