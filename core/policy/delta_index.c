#include "core/policy/delta_index.h"

#include "core/base/fs.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { INDEX_MAX = 64 << 20 };

Err delta_read_json(const char *path, cJSON **out, Fault *fault)
{
    Text text;
    text_init(&text, INDEX_MAX);
    Err err = fs_read(path, &text, fault);
    err = err ? err : json_parse(text_str(&text), INDEX_MAX, path, out, fault);
    text_free(&text);
    return err;
}

int64_t delta_number_of(const cJSON *object, const char *key)
{
    int64_t value = -1;
    const char *text = json_string(object, key, NULL);
    return text && str_to_i64(str_from(text), &value) ? value : json_i64(object, key, -1);
}

Err delta_index_read(const char *dir, DeltaIndex *index, Fault *fault)
{
    *index = (DeltaIndex){.version = -1, .base = -1};
    char *path = fs_join(dir, "model.safetensors.index.json");
    Err err = fs_exists(path) ? delta_read_json(path, &index->json, fault) : ERR_OK;
    free(path);
    const cJSON *meta = json_get(index->json, "metadata");
    const char *encoding = json_string(meta, "delta_encoding", NULL);
    if (err != ERR_OK || !encoding) {
        return err;
    }
    index->delta = true;
    index->version = delta_number_of(meta, "version");
    index->base = delta_number_of(meta, "base_version");
    index->base_digest = json_string(meta, "base_digest", NULL);
    index->digest = json_string(meta, "digest", NULL);
    const char *packing = json_string(meta, "compression_format", "");
    if (strcmp(packing, "zstd") != 0) {
        return fault_set(fault, ERR_UNSUPPORTED, "publish with zstd",
                         "%s: compression \"%.32s\" is not supported", dir, packing);
    }
    err = delta_encoding_parse(encoding, &index->encoding, fault);
    return err ? err : delta_sum_parse(json_string(meta, "checksum_format", ""), &index->sum,
                                       fault);
}

char *delta_version_dir(const char *source, int64_t version)
{
    return xasprintf("%s/weight_v%06lld", source, (long long)version);
}
