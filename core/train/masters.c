#include "core/train/masters.h"

#include "core/base/mem.h"
#include "core/model/safetensors.h"

#include <stdlib.h>
#include <string.h>

struct Masters {
    Graph *graph;
    int16_t **rests; /* per parameter tensor: bits of the master - bits of its BF16 value */
    int tensors;
};

static uint32_t bits_of(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

Err masters_new(Graph *graph, Masters **out, Fault *fault)
{
    Masters *m = xcalloc(1, sizeof *m);
    m->graph = graph;
    m->tensors = graph_param_count(graph);
    m->rests = xcalloc((size_t)m->tensors, sizeof *m->rests);
    *out = NULL;
    for (int i = 0; i < m->tensors; i++) {
        size_t count = 0;
        void *rests = NULL;
        (void)graph_param(graph, i, &count);
        if (try_calloc(count, sizeof(int16_t), SIZE_MAX, &rests) != ERR_OK) {
            masters_free(m);
            return fault_set(fault, ERR_MEMORY, "train a smaller model, or publish float32",
                             "no memory for the masters of the BF16 weights");
        }
        m->rests[i] = rests;
    }
    *out = m;
    return ERR_OK;
}

void masters_free(Masters *masters)
{
    if (!masters) {
        return;
    }
    for (int i = 0; i < masters->tensors; i++) {
        free(masters->rests[i]);
    }
    free(masters->rests);
    free(masters);
}

static float hide(float master, int16_t *rest)
{
    uint32_t bits = bits_of(master);
    if ((bits & 0x7f800000U) == 0x7f800000U) { /* not finite: kept as it is, others complain */
        *rest = 0;
        return master;
    }
    uint32_t rounded = (uint32_t)bf16_from_f32(master) << 16;
    int32_t difference = (int32_t)(bits - rounded);
    *rest = (int16_t)(difference > INT16_MAX ? INT16_MAX : difference);
    return float_of(rounded);
}

void masters_hide(Masters *masters)
{
    for (int i = 0; masters && i < masters->tensors; i++) {
        size_t count = 0;
        float *p = graph_param(masters->graph, i, &count);
        for (size_t j = 0; j < count; j++) {
            p[j] = hide(p[j], &masters->rests[i][j]);
        }
    }
}

void masters_show(Masters *masters)
{
    for (int i = 0; masters && i < masters->tensors; i++) {
        size_t count = 0;
        float *p = graph_param(masters->graph, i, &count);
        for (size_t j = 0; j < count; j++) {
            const uint32_t rest = (uint32_t)masters->rests[i][j]; /* sign carried along */
            p[j] = float_of(bits_of(p[j]) + rest);
        }
    }
}
