/* The index of a published version, as slime's writer makes it. For delta_pull.c and delta_build.c;
 * nobody else includes it. */
#ifndef ROLLTOP_POLICY_DELTA_INDEX_H
#define ROLLTOP_POLICY_DELTA_INDEX_H

#include "core/base/json.h"
#include "core/policy/delta.h"

typedef struct DeltaIndex {
    cJSON *json; /* the caller frees it; NULL: no index */
    bool delta;  /* else a complete checkpoint, and nothing below is set */
    int64_t version, base;
    DeltaEncoding encoding;
    DeltaSum sum;
    const char *base_digest, *digest; /* inside json; NULL: not given */
} DeltaIndex;

/* Whatever is returned, index->json is to be freed. */
Err delta_index_read(const char *dir, DeltaIndex *index, Fault *fault);
char *delta_version_dir(const char *source, int64_t version); /* malloc'ed */
Err delta_read_json(const char *path, cJSON **out, Fault *fault);
/* A number, or the text of one; -1: neither. */
int64_t delta_number_of(const cJSON *object, const char *key);

#endif
