/* safetensors files: a strict reader and a writer. Verdicts on hostile files as
 * the reference implementation's (tests/data/safetensors-cases). */
#ifndef ROLLTOP_MODEL_SAFETENSORS_H
#define ROLLTOP_MODEL_SAFETENSORS_H

#include "core/base/str.h"

typedef enum StDtype {
    ST_BOOL, ST_U8, ST_I8, ST_I16, ST_U16, ST_F16, ST_BF16, ST_I32, ST_U32, ST_F32,
    ST_F64, ST_I64, ST_U64, ST_F8_E4M3, ST_F8_E5M2,
    /* known to the format, carried but not computed with */
    ST_F4, ST_F6_E2M3, ST_F6_E3M2, ST_F8_E8M0, ST_F8_E4M3FNUZ, ST_F8_E5M2FNUZ, ST_C64
} StDtype;
size_t st_dtype_size(StDtype dtype); /* bytes; 0 for the types below one byte */
size_t st_dtype_bits(StDtype dtype);
const char *st_dtype_name(StDtype dtype);

enum { ST_RANK_MAX = 16 };

typedef struct StTensor {
    const char *name; /* owned by the file, NUL-terminated */
    size_t name_n;    /* bytes; a name may hold NUL */
    StDtype dtype;
    int rank;
    int64_t shape[ST_RANK_MAX];
    const struct StFile *file;
    uint64_t at; /* place of the data in the file */
    size_t bytes;
} StTensor;

typedef struct StFile StFile; /* one open file: its header in memory, data read when asked for */
/* ERR_FORMAT names the problem by one of the reference's classes: "header too small", "header
 * too large", "invalid header length", "invalid UTF-8", "invalid JSON", "invalid offset", "size
 * mismatch", "overflow", "not fully covered", "sub-byte". Stricter than the reference: duplicate
 * names and a blank before the header are refused, and more than ST_RANK_MAX dimensions. */
Err st_open(const char *path, StFile **out, Fault *fault);
void st_close(StFile *file);
size_t st_count(const StFile *file);
const StTensor *st_at(const StFile *file, size_t index); /* in file order of data */
const StTensor *st_find(const StFile *file, const char *name);
const char *st_metadata(const StFile *file, const char *key); /* NULL when absent */

/* A checkpoint directory: model.safetensors, or model.safetensors.index.json and its shards. */
typedef struct StSet StSet;
Err st_set_open(const char *dir, StSet **out, Fault *fault);
void st_set_close(StSet *set);
size_t st_set_count(const StSet *set);
const StTensor *st_set_at(const StSet *set, size_t index);
const StTensor *st_set_find(const StSet *set, const char *name);

/* Bytes [from, from+n) of a tensor. ERR_IO: the file cannot be read there, or has become shorter
 * since it was opened. Any thread; likewise below. */
Err st_read_bytes(const StTensor *tensor, size_t from, size_t n, void *out);
/* Elements [from, from+count) as float, from F32, BF16, F16 or F64; ERR_UNSUPPORTED else. */
Err st_read_f32(const StTensor *tensor, size_t from, size_t count, float *out);

typedef struct StWriteTensor {
    const char *name;
    StDtype dtype;
    int rank;
    int64_t shape[ST_RANK_MAX];
    const void *data;
} StWriteTensor;
/* Temp file, fsync, rename. Header padded to 8; tensors in the order given. */
Err st_write(const char *path, const StWriteTensor *tensors, size_t count,
             const char *const *metadata /* key, value, …, NULL; may be NULL */, Fault *fault);

/* Round to nearest even; NaN stays NaN (golden-qwen3 bf16.safetensors: exact bytes). */
uint16_t bf16_from_f32(float v);
float f32_from_bf16(uint16_t v);
float f32_from_f16(uint16_t v);

#endif
