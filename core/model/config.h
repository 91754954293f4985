/* config.json of a Hugging Face checkpoint: the architectures that rolltop computes. */
#ifndef ROLLTOP_MODEL_CONFIG_H
#define ROLLTOP_MODEL_CONFIG_H

#include "core/base/str.h"

typedef enum ModelArch { MODEL_QWEN3, MODEL_LLAMA } ModelArch; /* Llama: no q/k-norm */
typedef enum ModelDtype { MODEL_F32, MODEL_BF16, MODEL_F16 } ModelDtype;

enum { MODEL_EOS_MAX = 8 };

typedef struct ModelConfig {
    ModelArch arch;
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    int max_positions;
    float rms_eps;
    double rope_theta;
    bool tied;        /* lm_head shares the embedding */
    bool attention_bias; /* refused with a clear fault when true */
    ModelDtype dtype; /* torch_dtype / dtype of the file */
    int bos;          /* -1: none */
    int eos[MODEL_EOS_MAX];
    int eos_count;    /* config.json, then generation_config.json's list merged */
} ModelConfig;

/* Reads dir/config.json (both spellings of rope theta and dtype; rope scaling other than
 * "default" is refused by name) and dir/generation_config.json if present. Every size is checked
 * against sane bounds and against each other before anything is allocated by it. */
Err model_config_load(const char *dir, ModelConfig *out, Fault *fault);
/* Writes a config.json that transformers reads. */
Err model_config_save(const ModelConfig *config, const char *dir, Fault *fault);
int64_t model_parameter_count(const ModelConfig *config);

/* The tensors a checkpoint of this architecture must hold, in a fixed order, with shapes.
 * `index` 0 … model_tensor_count-1. Names as in Hugging Face checkpoints. */
typedef struct ModelTensorSpec {
    char name[96];
    int rank;
    int64_t shape[2];
} ModelTensorSpec;
int model_tensor_count(const ModelConfig *config);
void model_tensor_spec(const ModelConfig *config, int index, ModelTensorSpec *out);

#endif
