#include "core/policy/policy_diff.h"

#include "core/model/safetensors.h"

#include <math.h>

enum { CHUNK = 8192 };

static Err diff_tensor(const StTensor *a, const StTensor *b, PolicyDiff *out, Fault *fault)
{
    float x[CHUNK];
    float y[CHUNK];
    double sums[3] = {0};
    size_t count = a->bytes / st_dtype_size(a->dtype);
    for (size_t from = 0; from < count; from += CHUNK) {
        size_t n = count - from < CHUNK ? count - from : CHUNK;
        if (st_read_f32(a, from, n, x) != ERR_OK || st_read_f32(b, from, n, y) != ERR_OK) {
            return fault_set(fault, ERR_IO, NULL, "tensor %s cannot be read as numbers", a->name);
        }
        for (size_t i = 0; i < n; i++) {
            double d = (double)y[i] - (double)x[i];
            sums[0] += (double)x[i] * (double)x[i];
            sums[1] += (double)y[i] * (double)y[i];
            sums[2] += d * d;
            out->changed += x[i] != y[i];
        }
    }
    out->name = a->name;
    out->elements = (int64_t)count;
    out->norm_a = sqrt(sums[0]);
    out->norm_b = sqrt(sums[1]);
    out->norm_change = sqrt(sums[2]);
    return ERR_OK;
}

static bool comparable(const StTensor *a, const StTensor *b)
{
    bool same = b != NULL && a->rank == b->rank && st_dtype_size(a->dtype) > 0 &&
                st_dtype_size(b->dtype) > 0 &&
                a->bytes / st_dtype_size(a->dtype) == b->bytes / st_dtype_size(b->dtype);
    for (int d = 0; same && d < a->rank; d++) {
        same = a->shape[d] == b->shape[d];
    }
    return same;
}

static Err diff_sets(const StSet *a, const StSet *b, const char *dir_a, const char *dir_b,
                     PolicyDiffRow *row, void *user, Fault *fault)
{
    PolicyDiff sum = {.name = "all tensors"};
    if (st_set_count(a) != st_set_count(b)) {
        return fault_set(fault, ERR_FORMAT, NULL, "%s holds %zu tensors, %s %zu", dir_a,
                         st_set_count(a), dir_b, st_set_count(b));
    }
    for (size_t i = 0; i < st_set_count(a); i++) {
        const StTensor *tensor = st_set_at(a, i);
        const StTensor *other = st_set_find(b, tensor->name);
        PolicyDiff one = {0};
        if (!comparable(tensor, other)) {
            return fault_set(fault, ERR_FORMAT, NULL,
                             "tensor %s is missing in %s or has another shape there",
                             tensor->name, dir_b);
        }
        Err err = diff_tensor(tensor, other, &one, fault);
        if (err != ERR_OK) {
            return err;
        }
        row(&one, user);
        sum.elements += one.elements;
        sum.changed += one.changed;
        sum.norm_a = hypot(sum.norm_a, one.norm_a);
        sum.norm_b = hypot(sum.norm_b, one.norm_b);
        sum.norm_change = hypot(sum.norm_change, one.norm_change);
    }
    row(&sum, user);
    return ERR_OK;
}

Err policy_diff(const char *dir_a, const char *dir_b, PolicyDiffRow *row, void *user,
                Fault *fault)
{
    StSet *a = NULL;
    StSet *b = NULL;
    Err err = st_set_open(dir_a, &a, fault);
    err = err ? err : st_set_open(dir_b, &b, fault);
    err = err ? err : diff_sets(a, b, dir_a, dir_b, row, user, fault);
    st_set_close(a);
    st_set_close(b);
    return err;
}
