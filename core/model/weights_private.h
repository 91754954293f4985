/* The packed form of the weights, for the forward pass only. */
#ifndef ROLLTOP_MODEL_WEIGHTS_PRIVATE_H
#define ROLLTOP_MODEL_WEIGHTS_PRIVATE_H

#include "core/model/weights.h"

/* W of y = W x, rows as columns of panels (kernels.h). Matrices that read the same input stand
 * in one: q, k and v. */
typedef struct PackedMatrix {
    int n, k;
    bool bf16;
    void *data; /* [ceil(n/32)][k][32] of float or uint16_t */
} PackedMatrix;

typedef struct LayerWeights {
    PackedMatrix qkv, o, gate, up, down;
    float *in_norm, *post_norm;
    float *q_norm, *k_norm; /* NULL for Llama */
} LayerWeights;

struct Weights {
    _Atomic int references;
    ModelConfig config;
    LayerWeights *layers;
    PackedMatrix embedding; /* n = vocab; also the head when tied */
    PackedMatrix head;      /* data NULL when tied */
    float *norm;
    uint64_t *hashes;
    size_t bytes;
    char digest[DIGEST_TEXT];
};

/* Row `index` of a packed matrix as floats [k]: the embedding of a token. */
void packed_row(const PackedMatrix *matrix, int index, float *out);

#endif
