/* The header of a safetensors file, parsed and judged; private to core/model. */
#ifndef ROLLTOP_MODEL_ST_HEADER_H
#define ROLLTOP_MODEL_ST_HEADER_H

#include "core/model/safetensors.h"

typedef struct StHeader {
    StTensor *tensors; /* sorted by place of their data */
    size_t count;
    char **metadata; /* key, value, key, value, … */
    size_t metadata_count;
    uint32_t *slots; /* open addressing: 1 + index of a tensor; slot_count is a power of two */
    size_t slot_count;
} StHeader;

/* Bytes that st_header_parse wants to see of a file that begins so: length and header, or all
 * that it can judge without. `start` holds the file's first 8 bytes, or fewer when it is short. */
size_t st_header_extent(Str start, uint64_t file_bytes);
/* `head` is the file's beginning, st_header_extent bytes of it; not kept. */
Err st_header_parse(Str head, uint64_t file_bytes, const char *path, StHeader *out, Fault *fault);
void st_header_free(StHeader *header);
const StTensor *st_header_find(const StHeader *header, Str name);

#endif
