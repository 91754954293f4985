#include "core/model/digest.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { DIGEST_CHUNK = 256 << 10 }; /* read, then hashed while a core's own cache holds it */

static void add_le(Hasher *hasher, uint64_t v, size_t bytes)
{
    unsigned char le[8];
    for (size_t i = 0; i < bytes; i++) {
        le[i] = (unsigned char)(v >> (8 * i) & 0xFF);
    }
    hasher_add(hasher, le, bytes);
}

static void add_head(Hasher *hasher, const StTensor *tensor)
{
    const char *dtype = st_dtype_name(tensor->dtype);
    hasher_add(hasher, tensor->name, tensor->name_n + 1);
    hasher_add(hasher, dtype, strlen(dtype) + 1);
    add_le(hasher, (uint64_t)tensor->rank, 4);
    for (int i = 0; i < tensor->rank; i++) {
        add_le(hasher, (uint64_t)tensor->shape[i], 8);
    }
}

Err digest_add_tensor(Hasher *hasher, Hasher64 *bytes, const StTensor *tensor, Fault *fault)
{
    unsigned char *chunk = xcalloc(1, DIGEST_CHUNK);
    Err err = ERR_OK;
    add_head(hasher, tensor);
    for (size_t at = 0; at < tensor->bytes && err == ERR_OK; at += DIGEST_CHUNK) {
        size_t n = tensor->bytes - at < DIGEST_CHUNK ? tensor->bytes - at : DIGEST_CHUNK;
        err = st_read_bytes(tensor, at, n, chunk);
        if (err != ERR_OK) {
            err = fault_set(fault, err, "fetch or write the checkpoint again",
                            "tensor %s cannot be read: its file became shorter, or its disk fails",
                            tensor->name);
            break;
        }
        hasher_add(hasher, chunk, n);
        if (bytes != NULL) {
            hasher64_add(bytes, chunk, n);
        }
    }
    free(chunk);
    return err;
}

Err checkpoint_digest(const StSet *set, const ModelConfig *config, char out[DIGEST_TEXT],
                      Fault *fault)
{
    Hasher *hasher = hasher_new();
    Err err = ERR_OK;
    int count = model_tensor_count(config);
    for (int i = 0; i < count && err == ERR_OK; i++) {
        ModelTensorSpec spec;
        model_tensor_spec(config, i, &spec);
        const StTensor *tensor = st_set_find(set, spec.name);
        if (tensor == NULL) {
            err = fault_set(fault, ERR_NOT_FOUND, "fetch or write the checkpoint again",
                            "the checkpoint lacks the tensor %s", spec.name);
        } else {
            err = digest_add_tensor(hasher, NULL, tensor, fault);
        }
    }
    if (err == ERR_OK) {
        hasher_text(hasher, out);
    }
    hasher_free(hasher);
    return err;
}
