/* Files are mapped, never read whole: a 16 GB checkpoint opens in milliseconds and shares its
 * pages between the engines of one host. */
#include "core/model/safetensors.h"

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/model/st_header.h"

#include <stdlib.h>
#include <string.h>

#define DTYPES(X)                                                                                 \
    X(ST_BOOL, "BOOL", 8)                                                                         \
    X(ST_U8, "U8", 8)                                                                             \
    X(ST_I8, "I8", 8)                                                                             \
    X(ST_I16, "I16", 16)                                                                          \
    X(ST_U16, "U16", 16)                                                                          \
    X(ST_F16, "F16", 16)                                                                          \
    X(ST_BF16, "BF16", 16)                                                                        \
    X(ST_I32, "I32", 32)                                                                          \
    X(ST_U32, "U32", 32)                                                                          \
    X(ST_F32, "F32", 32)                                                                          \
    X(ST_F64, "F64", 64)                                                                          \
    X(ST_I64, "I64", 64)                                                                          \
    X(ST_U64, "U64", 64)                                                                          \
    X(ST_F8_E4M3, "F8_E4M3", 8)                                                                   \
    X(ST_F8_E5M2, "F8_E5M2", 8)                                                                   \
    X(ST_F4, "F4", 4)                                                                             \
    X(ST_F6_E2M3, "F6_E2M3", 6)                                                                   \
    X(ST_F6_E3M2, "F6_E3M2", 6)                                                                   \
    X(ST_F8_E8M0, "F8_E8M0", 8)                                                                   \
    X(ST_F8_E4M3FNUZ, "F8_E4M3FNUZ", 8)                                                           \
    X(ST_F8_E5M2FNUZ, "F8_E5M2FNUZ", 8)                                                           \
    X(ST_C64, "C64", 64)

size_t st_dtype_bits(StDtype dtype)
{
    switch (dtype) {
#define X(id, name, bits)                                                                         \
    case id:                                                                                      \
        return bits;
        DTYPES(X)
#undef X
    }
    return 0;
}

size_t st_dtype_size(StDtype dtype)
{
    return st_dtype_bits(dtype) / 8;
}

const char *st_dtype_name(StDtype dtype)
{
    switch (dtype) {
#define X(id, name, bits)                                                                         \
    case id:                                                                                      \
        return name;
        DTYPES(X)
#undef X
    }
    return "?";
}

struct StFile {
    FsMap map;
    StHeader header;
};

Err st_open(const char *path, StFile **out, Fault *fault)
{
    FsMap map;
    *out = NULL;
    Err err = fs_map(path, &map, fault);
    if (err != ERR_OK) {
        return err;
    }
    StFile *file = xcalloc(1, sizeof *file);
    file->map = map;
    err = st_header_parse((Str){(const char *)map.p, map.n}, path, &file->header, fault);
    if (err != ERR_OK) {
        st_close(file);
        return err;
    }
    *out = file;
    return ERR_OK;
}

void st_close(StFile *file)
{
    if (file == NULL) {
        return;
    }
    st_header_free(&file->header);
    fs_unmap(&file->map);
    free(file);
}

size_t st_count(const StFile *file)
{
    return file->header.count;
}

const StTensor *st_at(const StFile *file, size_t index)
{
    return index < file->header.count ? &file->header.tensors[index] : NULL;
}

const StTensor *st_find(const StFile *file, const char *name)
{
    return st_header_find(&file->header, str_from(name));
}

const char *st_metadata(const StFile *file, const char *key)
{
    for (size_t i = 0; i < file->header.metadata_count; i += 2) {
        if (strcmp(file->header.metadata[i], key) == 0) {
            return file->header.metadata[i + 1];
        }
    }
    return NULL;
}

/* ---- elements as float ---- */

uint16_t bf16_from_f32(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
        return (uint16_t)(bits >> 16 | 0x40); /* a payload in the low half must not vanish */
    }
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

float f32_from_bf16(uint16_t v)
{
    uint32_t bits = (uint32_t)v << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

float f32_from_f16(uint16_t v)
{
    uint32_t exponent = v >> 10 & 0x1F;
    uint32_t bits = (uint32_t)(v & 0x8000) << 16;
    float out;
    if (exponent == 0) { /* zero and subnormal: exact in float */
        out = (float)(v & 0x3FF) * 0x1p-24f;
        return (v & 0x8000) != 0 ? -out : out;
    }
    bits |= exponent == 31 ? 0x7F800000u : (exponent + 112) << 23;
    bits |= (uint32_t)(v & 0x3FF) << 13;
    memcpy(&out, &bits, sizeof out);
    return out;
}

uint16_t f16_from_f32(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) {
        return (uint16_t)(sign | 0x7E00 | (magnitude >> 13 & 0x3FF));
    }
    if (magnitude >= 0x477FF000u) { /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7C00);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: subnormal; adding 0.5 rounds to nearest even */
        float shifted;
        memcpy(&shifted, &magnitude, sizeof shifted);
        shifted += 0.5f;
        memcpy(&magnitude, &shifted, sizeof magnitude);
        return (uint16_t)(sign | (magnitude - 0x3F000000u));
    }
    magnitude += 0xFFFu + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((magnitude - 0x38000000u) >> 13));
}

Err st_read_f32(const StTensor *tensor, size_t from, size_t count, float *out)
{
    size_t size = st_dtype_size(tensor->dtype);
    if (tensor->dtype != ST_F32 && tensor->dtype != ST_BF16 && tensor->dtype != ST_F16 &&
        tensor->dtype != ST_F64) {
        return ERR_UNSUPPORTED;
    }
    if (from > tensor->bytes / size || count > tensor->bytes / size - from) {
        return ERR_ARG;
    }
    if (count == 0) {
        return ERR_OK;
    }
    const unsigned char *p = tensor->data + from * size;
    if (tensor->dtype == ST_F32) {
        memcpy(out, p, count * sizeof(float));
        return ERR_OK;
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        double wide;
        if (tensor->dtype == ST_F64) {
            memcpy(&wide, p + i * 8, sizeof wide);
            out[i] = (float)wide;
        } else {
            memcpy(&half, p + i * 2, sizeof half);
            out[i] = tensor->dtype == ST_BF16 ? f32_from_bf16(half) : f32_from_f16(half);
        }
    }
    return ERR_OK;
}
