/* Only headers are kept, so that a 16 GB checkpoint opens in milliseconds; data is read where it
 * is used, from the page cache that the engines of one host share. Files are not mapped: somebody
 * who cuts a file short would end the program (SIGBUS) instead of failing the load. */
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
    FsFile file;
    StHeader header;
};

/* The first bytes of the file, as many as the header's verdict needs. */
static Err read_head(const FsFile *file, const char *path, Str *head, Fault *fault)
{
    char start[8];
    size_t n = file->n < sizeof start ? (size_t)file->n : sizeof start;
    void *bytes = NULL;
    Err err = fs_read_at(file, 0, start, n);
    if (err == ERR_OK) {
        n = st_header_extent((Str){start, n}, file->n);
        if (try_calloc(n, 1, SIZE_MAX, &bytes) != ERR_OK) {
            return fault_set(fault, ERR_MEMORY, NULL, "no memory for the header of %s", path);
        }
        err = fs_read_at(file, 0, bytes, n);
    }
    if (err != ERR_OK) {
        free(bytes);
        return fault_set(fault, err, "fetch or write the file again", "%s cannot be read", path);
    }
    *head = (Str){bytes, n};
    return ERR_OK;
}

Err st_open(const char *path, StFile **out, Fault *fault)
{
    FsFile opened;
    Str head = {0};
    *out = NULL;
    Err err = fs_open(path, &opened, fault);
    if (err != ERR_OK) {
        return err;
    }
    StFile *file = xcalloc(1, sizeof *file);
    file->file = opened;
    err = read_head(&file->file, path, &head, fault);
    if (err == ERR_OK) {
        err = st_header_parse(head, file->file.n, path, &file->header, fault);
    }
    free((void *)(uintptr_t)head.p);
    if (err != ERR_OK) {
        st_close(file);
        return err;
    }
    for (size_t i = 0; i < file->header.count; i++) {
        file->header.tensors[i].file = file;
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
    fs_close(&file->file);
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

Err st_read_bytes(const StTensor *tensor, size_t from, size_t n, void *out)
{
    if (from > tensor->bytes || n > tensor->bytes - from) {
        return ERR_ARG;
    }
    return fs_read_at(&tensor->file->file, tensor->at + from, out, n);
}

static void widen(StDtype dtype, const unsigned char *p, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        double wide;
        if (dtype == ST_F64) {
            memcpy(&wide, p + i * 8, sizeof wide);
            out[i] = (float)wide;
        } else {
            memcpy(&half, p + i * 2, sizeof half);
            out[i] = dtype == ST_BF16 ? f32_from_bf16(half) : f32_from_f16(half);
        }
    }
}

Err st_read_f32(const StTensor *tensor, size_t from, size_t count, float *out)
{
    enum { CHUNK_BYTES = 16384 };
    unsigned char chunk[CHUNK_BYTES];
    size_t size = st_dtype_size(tensor->dtype);
    if (tensor->dtype != ST_F32 && tensor->dtype != ST_BF16 && tensor->dtype != ST_F16 &&
        tensor->dtype != ST_F64) {
        return ERR_UNSUPPORTED;
    }
    if (from > tensor->bytes / size || count > tensor->bytes / size - from) {
        return ERR_ARG;
    }
    if (tensor->dtype == ST_F32) {
        return st_read_bytes(tensor, from * size, count * size, out);
    }
    while (count > 0) {
        size_t n = count < CHUNK_BYTES / size ? count : CHUNK_BYTES / size;
        Err err = st_read_bytes(tensor, from * size, n * size, chunk);
        if (err != ERR_OK) {
            return err;
        }
        widen(tensor->dtype, chunk, n, out);
        from += n;
        out += n;
        count -= n;
    }
    return ERR_OK;
}
