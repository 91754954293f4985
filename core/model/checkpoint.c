#include "core/model/checkpoint.h"

#include <string.h>

static const char REFETCH[] = "Fetch or write the checkpoint again";

static Err checkpoint_check(const char *dir, const StTensor *tensor, const ModelTensorSpec *spec,
                            Fault *fault)
{
    bool same = tensor->rank == spec->rank;
    for (int i = 0; same && i < spec->rank; i++) {
        same = tensor->shape[i] == spec->shape[i];
    }
    if (!same) {
        return fault_set(fault, ERR_FORMAT,
                         "config.json and the tensors must be of the same checkpoint",
                         "%s: tensor %s has a shape that is not [%lld%s%.0lld]", dir, spec->name,
                         (long long)spec->shape[0], spec->rank == 2 ? ", " : "",
                         (long long)(spec->rank == 2 ? spec->shape[1] : 0));
    }
    if (tensor->dtype != ST_F32 && tensor->dtype != ST_BF16 && tensor->dtype != ST_F16) {
        return fault_set(fault, ERR_UNSUPPORTED, "Convert it to F32, BF16 or F16",
                         "%s: tensor %s is %s", dir, spec->name, st_dtype_name(tensor->dtype));
    }
    return ERR_OK;
}

static bool checkpoint_surplus_allowed(const ModelConfig *config, const char *name)
{
    return strstr(name, "rotary_emb.inv_freq") != NULL ||
           (config->tied && strcmp(name, "lm_head.weight") == 0);
}

static Err checkpoint_check_all(const char *dir, const ModelConfig *config, const StSet *set,
                                Fault *fault)
{
    const int count = model_tensor_count(config);
    ModelTensorSpec spec;
    for (int i = 0; i < count; i++) {
        model_tensor_spec(config, i, &spec);
        const StTensor *tensor = st_set_find(set, spec.name);
        if (tensor == NULL) {
            return fault_set(fault, ERR_FORMAT, REFETCH, "%s: tensor %s is missing", dir,
                             spec.name);
        }
        const Err err = checkpoint_check(dir, tensor, &spec, fault);
        if (err != ERR_OK) {
            return err;
        }
    }
    /* All wanted ones are there, so only a larger count can hide a stranger. */
    if (st_set_count(set) == (size_t)count) {
        return ERR_OK;
    }
    for (size_t i = 0; i < st_set_count(set); i++) {
        const char *name = st_set_at(set, i)->name;
        bool wanted = checkpoint_surplus_allowed(config, name);
        for (int j = 0; j < count && !wanted; j++) {
            model_tensor_spec(config, j, &spec);
            wanted = strcmp(name, spec.name) == 0;
        }
        if (!wanted) {
            return fault_set(fault, ERR_FORMAT,
                             "config.json and the tensors must be of the same checkpoint",
                             "%s: tensor %.120s does not belong to this architecture", dir, name);
        }
    }
    return ERR_OK;
}

Err checkpoint_open(const char *dir, const ModelConfig *config, StSet **out, Fault *fault)
{
    *out = NULL;
    StSet *set = NULL;
    Err err = st_set_open(dir, &set, fault);
    if (err != ERR_OK) {
        return err;
    }
    err = checkpoint_check_all(dir, config, set, fault);
    if (err != ERR_OK) {
        st_set_close(set);
        return err;
    }
    *out = set;
    return ERR_OK;
}

const StTensor *checkpoint_tensor(const StSet *set, const ModelConfig *config, int index)
{
    ModelTensorSpec spec;
    model_tensor_spec(config, index, &spec);
    return st_set_find(set, spec.name);
}

Err checkpoint_read(const char *dir, const StTensor *tensor, size_t from, size_t count, float *out,
                    Fault *fault)
{
    const Err err = st_read_f32(tensor, from, count, out);
    if (err != ERR_OK) {
        return fault_set(fault, err, REFETCH, "%s: tensor %s cannot be read", dir, tensor->name);
    }
    uint32_t bad = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &out[i], sizeof(bits));
        bad |= (bits & 0x7f800000U) == 0x7f800000U ? 1U : 0U;
    }
    if (bad != 0) {
        return fault_set(fault, ERR_NUMERIC, "Go back to a checkpoint that is whole",
                         "%s: tensor %s holds NaN or infinity", dir, tensor->name);
    }
    return ERR_OK;
}
