#include "core/model/digest.h"

#include <string.h>

static void add_le(Hasher *hasher, uint64_t v, size_t bytes)
{
    unsigned char le[8];
    for (size_t i = 0; i < bytes; i++) {
        le[i] = (unsigned char)(v >> (8 * i) & 0xFF);
    }
    hasher_add(hasher, le, bytes);
}

void digest_add_head(Hasher *hasher, const StTensor *tensor)
{
    const char *dtype = st_dtype_name(tensor->dtype);
    hasher_add(hasher, tensor->name, tensor->name_n + 1);
    hasher_add(hasher, dtype, strlen(dtype) + 1);
    add_le(hasher, (uint64_t)tensor->rank, 4);
    for (int i = 0; i < tensor->rank; i++) {
        add_le(hasher, (uint64_t)tensor->shape[i], 8);
    }
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
            digest_add_head(hasher, tensor);
            hasher_add(hasher, tensor->data, tensor->bytes);
        }
    }
    if (err == ERR_OK) {
        hasher_text(hasher, out);
    }
    hasher_free(hasher);
    return err;
}
