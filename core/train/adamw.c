/* One pass over the gradients (norm, finiteness), one over everything (update). Bound by memory:
 * 28 bytes a parameter and step. Scalars in double, tensors in float, as torch does it. */
#include "core/train/adamw.h"

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/model/safetensors.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Squares of a float gradient must stay finite in float. */
static const float GRADIENT_MAX = 1e18f;

struct AdamW {
    Graph *graph;
    AdamWConfig config;
    int64_t steps;
    int tensors;
    float **m, **v;
};

AdamW *adamw_new(Graph *graph, const AdamWConfig *config)
{
    AdamW *adamw = xcalloc(1, sizeof *adamw);
    adamw->graph = graph;
    adamw->config = *config;
    adamw->tensors = graph_param_count(graph);
    adamw->m = xcalloc((size_t)adamw->tensors, sizeof *adamw->m);
    adamw->v = xcalloc((size_t)adamw->tensors, sizeof *adamw->v);
    for (int i = 0; i < adamw->tensors; i++) {
        size_t count = 0;
        (void)graph_param(graph, i, &count);
        adamw->m[i] = xcalloc(count, sizeof(float));
        adamw->v[i] = xcalloc(count, sizeof(float));
    }
    return adamw;
}

void adamw_free(AdamW *adamw)
{
    if (!adamw) {
        return;
    }
    for (int i = 0; i < adamw->tensors; i++) {
        free(adamw->m[i]);
        free(adamw->v[i]);
    }
    free(adamw->m);
    free(adamw->v);
    free(adamw);
}

void adamw_set_lr(AdamW *adamw, double lr)
{
    adamw->config.lr = lr;
}

static void tensor_spec(const AdamW *adamw, int index, ModelTensorSpec *spec)
{
    model_tensor_spec(graph_config(adamw->graph), index, spec);
}

static uint32_t magnitude_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffU; /* ordered as the magnitudes are, infinity and NaN on top */
}

/* Norm of one gradient in double; *good when every entry is finite and below the bound. Eight sums
 * and an integer maximum, because those can be vectors without changing a result. */
static double gradient_norm(const float *g, size_t count, bool *good)
{
    double sums[8] = {0.0};
    uint32_t top = 0;
    size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        for (size_t j = 0; j < 8; j++) {
            uint32_t bits = magnitude_bits(g[i + j]);
            sums[j] += (double)g[i + j] * (double)g[i + j];
            top = bits > top ? bits : top;
        }
    }
    for (; i < count; i++) {
        uint32_t bits = magnitude_bits(g[i]);
        sums[0] += (double)g[i] * (double)g[i];
        top = bits > top ? bits : top;
    }
    *good = top < magnitude_bits(GRADIENT_MAX);
    double sum = 0.0;
    for (size_t j = 0; j < 8; j++) {
        sum += sums[j];
    }
    return sqrt(sum);
}

static Err gradients_check(AdamW *adamw, double *norm, Fault *fault)
{
    double squares = 0.0;
    for (int i = 0; i < adamw->tensors; i++) {
        size_t count = 0;
        const float *g = graph_grad(adamw->graph, i, &count);
        bool good = false;
        double one = gradient_norm(g, count, &good);
        if (!good) {
            size_t at = 0;
            while (at < count && isfinite(g[at]) && fabsf(g[at]) < GRADIENT_MAX) {
                at++;
            }
            ModelTensorSpec spec;
            tensor_spec(adamw, i, &spec);
            return fault_set(fault, ERR_NUMERIC, "the weights were left as they are; look at the "
                             "batch, lower --lr or set --clip-grad",
                             "the gradient of %s is %g at element %zu", spec.name,
                             at < count ? (double)g[at] : (double)NAN, at);
        }
        squares += one * one;
    }
    *norm = sqrt(squares);
    return ERR_OK;
}

typedef struct AdamWScalars {
    float decay, step, b1, one_b1, b2, one_b2, root, eps, clip;
} AdamWScalars;

/* Returns false when a weight is no longer finite. */
static bool tensor_update(float *restrict p, const float *restrict g, float *restrict m,
                          float *restrict v, size_t count, const AdamWScalars *s)
{
    uint32_t top = 0;
    for (size_t i = 0; i < count; i++) {
        float gi = g[i] * s->clip;
        float mi = s->b1 * m[i] + s->one_b1 * gi;
        float vi = s->b2 * v[i] + s->one_b2 * gi * gi;
        float pi = p[i] * s->decay - s->step * mi / (sqrtf(vi) * s->root + s->eps);
        m[i] = mi;
        v[i] = vi;
        p[i] = pi;
        uint32_t bits = magnitude_bits(pi);
        top = bits > top ? bits : top;
    }
    return top < 0x7f800000U;
}

Err adamw_step(AdamW *adamw, double *grad_norm, Fault *fault)
{
    const AdamWConfig *c = &adamw->config;
    if (!isfinite(c->lr) || c->lr < 0.0 || c->lr > 1e3) {
        return fault_set(fault, ERR_ARG, "choose a rate such as 1e-6", "--lr is %g", c->lr);
    }
    Err err = gradients_check(adamw, grad_norm, fault);
    if (err) {
        return err;
    }
    double clip = 1.0;
    if (c->clip_grad > 0.0) {
        clip = fmin(1.0, c->clip_grad / (*grad_norm + 1e-6));
    }
    adamw->steps++;
    double n = (double)adamw->steps;
    double correction1 = 1.0 - pow(c->beta1, n);
    double correction2 = 1.0 - pow(c->beta2, n);
    for (int i = 0; i < adamw->tensors; i++) {
        ModelTensorSpec spec;
        tensor_spec(adamw, i, &spec);
        double decay = spec.rank >= 2 || c->decay_1d ? c->weight_decay : 0.0;
        AdamWScalars s = {
            .decay = (float)(1.0 - c->lr * decay),
            .step = (float)(c->lr / correction1),
            .b1 = (float)c->beta1,
            .one_b1 = (float)(1.0 - c->beta1),
            .b2 = (float)c->beta2,
            .one_b2 = (float)(1.0 - c->beta2),
            .root = (float)(1.0 / sqrt(correction2)),
            .eps = (float)c->eps,
            .clip = (float)clip,
        };
        size_t count = 0;
        float *p = graph_param(adamw->graph, i, &count);
        const float *g = graph_grad(adamw->graph, i, &count);
        if (!tensor_update(p, g, adamw->m[i], adamw->v[i], count, &s)) {
            return fault_set(fault, ERR_NUMERIC, "go back to the last saved state and lower --lr",
                             "the weights of %s are no longer finite after the step", spec.name);
        }
    }
    return ERR_OK;
}

/* ---- state ---- */

static StWriteTensor moment_tensor(const AdamW *adamw, int index, bool second, char *name,
                                   size_t room)
{
    ModelTensorSpec spec;
    tensor_spec(adamw, index, &spec);
    snprintf(name, room, "%s.%s", second ? "exp_avg_sq" : "exp_avg", spec.name);
    StWriteTensor out = {.name = name, .dtype = ST_F32, .rank = spec.rank};
    memcpy(out.shape, spec.shape, sizeof spec.shape);
    out.data = second ? adamw->v[index] : adamw->m[index];
    return out;
}

enum { MOMENT_NAME_MAX = 128 };

Err adamw_save(const AdamW *adamw, const char *dir, Fault *fault)
{
    size_t count = 2 * (size_t)adamw->tensors;
    StWriteTensor *tensors = xcalloc(count, sizeof *tensors);
    char(*names)[MOMENT_NAME_MAX] = xcalloc(count, sizeof *names);
    for (size_t i = 0; i < count; i++) {
        tensors[i] = moment_tensor(adamw, (int)(i / 2), i % 2 == 1, names[i], MOMENT_NAME_MAX);
    }
    char step[32];
    snprintf(step, sizeof step, "%lld", (long long)adamw->steps);
    const char *metadata[] = {"step", step, NULL};
    char *path = fs_join(dir, "optimizer.safetensors");
    Err err = st_write(path, tensors, count, metadata, fault);
    free(path);
    free(names);
    free(tensors);
    return err;
}

static Err moment_load(const StFile *file, const char *path, const StWriteTensor *want,
                       float *into, Fault *fault)
{
    const StTensor *have = st_find(file, want->name);
    size_t count = 1;
    bool same = have && have->dtype == ST_F32 && have->rank == want->rank;
    for (int i = 0; same && i < want->rank; i++) {
        same = have->shape[i] == want->shape[i];
        count *= (size_t)want->shape[i];
    }
    if (!same) {
        return fault_set(fault, ERR_FORMAT, "resume with the state of the same model",
                         "%s: tensor %s is missing or has another shape", path, want->name);
    }
    Err err = st_read_f32(have, 0, count, into);
    for (size_t i = 0; !err && i < count; i++) {
        if (!isfinite(into[i])) {
            err = fault_set(fault, ERR_NUMERIC, "resume from an older state",
                            "%s: tensor %s holds %g", path, want->name, (double)into[i]);
        }
    }
    return err;
}

Err adamw_load(AdamW *adamw, const char *dir, Fault *fault)
{
    char *path = fs_join(dir, "optimizer.safetensors");
    StFile *file = NULL;
    Err err = st_open(path, &file, fault);
    const char *step = err ? NULL : st_metadata(file, "step");
    int64_t steps = 0;
    if (!err && (!step || !str_to_i64(str_from(step), &steps) || steps < 0)) {
        err = fault_set(fault, ERR_FORMAT, "resume from a state that rolltop saved",
                        "%s has no step count", path);
    }
    for (int i = 0; i < adamw->tensors && !err; i++) {
        char name[MOMENT_NAME_MAX];
        StWriteTensor want = moment_tensor(adamw, i, false, name, sizeof name);
        err = moment_load(file, path, &want, adamw->m[i], fault);
        if (!err) {
            want = moment_tensor(adamw, i, true, name, sizeof name);
            err = moment_load(file, path, &want, adamw->v[i], fault);
        }
    }
    if (!err) {
        adamw->steps = steps;
    }
    st_close(file);
    free(path);
    return err;
}
