/* Which tensor is which: the order behind model_tensor_spec, for code that computes. */
#ifndef ROLLTOP_MODEL_LAYOUT_H
#define ROLLTOP_MODEL_LAYOUT_H

#include "core/model/config.h"

/* Of one layer, in the order of Hugging Face's modules; Llama has no LT_Q_NORM and LT_K_NORM. */
typedef enum LayerTensor {
    LT_Q, LT_K, LT_V, LT_O, LT_Q_NORM, LT_K_NORM, LT_GATE, LT_UP, LT_DOWN, LT_IN_NORM, LT_POST_NORM,
    LT_COUNT
} LayerTensor;

enum { LAYOUT_EMBEDDING = 0 };
/* -1 for a tensor that the architecture does not have. */
int layout_layer(const ModelConfig *config, int layer, LayerTensor which);
int layout_norm(const ModelConfig *config);
int layout_head(const ModelConfig *config); /* the embedding when tied */

/* Rotary tables of positions 0 … positions-1, computed in double: cosine and sine, each
 * [positions][head_dim/2]. */
void layout_rope(const ModelConfig *config, int positions, float *cosine, float *sine);

#endif
