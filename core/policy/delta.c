#include "core/policy/delta.h"

#include "core/base/mem.h"
#include "core/policy/delta_sum.h"
#include "core/policy/delta_xor.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum {
    BLOCK = 64, ZSTD_LEVEL = 1
};

static const char *const encoding_names[] = {"xor", "overwrite"};

const char *delta_encoding_name(DeltaEncoding encoding)
{
    return encoding_names[encoding];
}

Err delta_encoding_parse(const char *name, DeltaEncoding *out, Fault *fault)
{
    for (int i = 0; i < 2; i++) {
        if (strcmp(name, encoding_names[i]) == 0) {
            *out = (DeltaEncoding)i;
            return ERR_OK;
        }
    }
    return fault_set(fault, ERR_UNSUPPORTED, "xor and overwrite are known",
                     "delta encoding \"%.32s\" is unknown", name);
}

Err delta_sum_parse(const char *name, DeltaSum *out, Fault *fault)
{
    if (strcmp(name, "xxh3-128") == 0) {
        *out = DELTA_SUM_XXH3_128;
    } else if (strcmp(name, "adler32") == 0) {
        *out = DELTA_SUM_ADLER32;
    } else {
        return fault_set(fault, ERR_UNSUPPORTED, "publish with xxh3-128 or adler32",
                         "checksum format \"%.32s\" is not supported", name);
    }
    return ERR_OK;
}

/* ---- encoding ----------------------------------------------------------------------------- */

/* Positions and new values of the bytes that differ, growing. */
typedef struct Spots {
    uint32_t *at;
    unsigned char *value;
    size_t count, capacity;
} Spots;

static bool spots_room(Spots *spots)
{
    if (spots->count + BLOCK <= spots->capacity) {
        return true;
    }
    size_t capacity = spots->capacity ? spots->capacity * 2 : 4096;
    uint32_t *at = realloc(spots->at, capacity * sizeof *at);
    spots->at = at ? at : spots->at;
    unsigned char *value = at ? realloc(spots->value, capacity) : NULL;
    spots->value = value ? value : spots->value;
    spots->capacity = value ? capacity : spots->capacity;
    return value != NULL;
}

static void spot_word(Spots *spots, uint64_t differs, size_t at, const unsigned char *b)
{
    while (differs != 0) {
        unsigned byte = (unsigned)__builtin_ctzll(differs) / 8;
        spots->at[spots->count] = (uint32_t)(at + byte);
        spots->value[spots->count++] = b[at + byte];
        differs &= ~(UINT64_C(0xff) << (8 * byte));
    }
}

/* Of bytes i to n, at memory speed: eight words at a time, bytes only where a word differs. */
static bool find_spots(const unsigned char *a, const unsigned char *b, size_t i, size_t n,
                       Spots *spots)
{
    for (; i + BLOCK <= n; i += BLOCK) {
        uint64_t x[BLOCK / 8];
        uint64_t y[BLOCK / 8];
        memcpy(x, a + i, BLOCK);
        memcpy(y, b + i, BLOCK);
        uint64_t any = 0;
        for (int w = 0; w < BLOCK / 8; w++) {
            x[w] = le64toh(x[w]) ^ le64toh(y[w]);
            any |= x[w];
        }
        if (any != 0 && !spots_room(spots)) {
            return false;
        }
        for (int w = 0; any != 0 && w < BLOCK / 8; w++) {
            spot_word(spots, x[w], i + (size_t)w * 8, b);
        }
    }
    if (i < n && !spots_room(spots)) {
        return false;
    }
    for (; i < n; i++) {
        if (a[i] != b[i]) {
            spots->at[spots->count] = (uint32_t)i;
            spots->value[spots->count++] = b[i];
        }
    }
    return true;
}

static void write_u32(unsigned char *p, uint32_t v)
{
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
    p[2] = (unsigned char)(v >> 16);
    p[3] = (unsigned char)(v >> 24);
}

static uint32_t read_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static Err pack(const void *payload, size_t n, void **frame, size_t *frame_n, Fault *fault)
{
    size_t bound = ZSTD_compressBound(n);
    void *out = malloc(bound);
    if (!out) {
        return fault_set(fault, ERR_MEMORY, NULL, "no memory for a delta of %zu bytes", n);
    }
    size_t written = ZSTD_compress(out, bound, payload, n, ZSTD_LEVEL);
    if (ZSTD_isError(written)) {
        free(out);
        return fault_set(fault, ERR_FORMAT, NULL, "zstd: %s", ZSTD_getErrorName(written));
    }
    *frame = out;
    *frame_n = written;
    return ERR_OK;
}

/* Comparing and summing, block by block. */
static bool find_all(const unsigned char *a, const unsigned char *b, size_t n, Spots *spots,
                     DeltaSummer *summer)
{
    size_t summed = 0;
    for (size_t at = 0; at < n; at += DELTA_BLOCK) {
        const size_t size = n - at < DELTA_BLOCK ? n - at : DELTA_BLOCK;
        if (!find_spots(a, b, at, at + size, spots)) {
            return false;
        }
        if (spots->count > 0) {
            delta_summer_add(summer, b + summed, at + size - summed);
            summed = at + size;
        }
    }
    return true;
}

static Err encode_overwrite(const unsigned char *a, const unsigned char *b, size_t n,
                            DeltaSummer *summer, DeltaFrame *frame, Fault *fault)
{
    Spots spots = {0};
    Err err = ERR_OK;
    unsigned char *payload = NULL;
    if (n > UINT32_MAX) {
        return fault_set(fault, ERR_LIMIT, "use the xor encoding",
                         "a tensor of %zu bytes is too large for the overwrite encoding", n);
    }
    bool found = find_all(a, b, n, &spots, summer);
    size_t payload_n = 4 + 5 * spots.count;
    payload = found ? malloc(payload_n) : NULL;
    frame->changed = spots.count;
    if (!payload) {
        err = fault_set(fault, ERR_MEMORY, NULL, "no memory for a delta of %zu bytes", n);
    } else if (spots.count > 0) {
        write_u32(payload, (uint32_t)spots.count);
        for (size_t i = 0; i < spots.count; i++) {
            write_u32(payload + 4 + 4 * i, spots.at[i]);
        }
        memcpy(payload + 4 + 4 * spots.count, spots.value, spots.count);
        err = pack(payload, payload_n, &frame->bytes, &frame->n, fault);
    }
    free(payload);
    free(spots.at);
    free(spots.value);
    return err;
}

Err delta_encode(DeltaScratch *scratch, DeltaEncoding encoding, const void *old_bytes,
                 const void *new_bytes, size_t n, DeltaSum kind, DeltaFrame *frame, Fault *fault)
{
    DeltaSummer summer;
    *frame = (DeltaFrame){0};
    if (encoding == DELTA_XOR) {
        return delta_xor_encode(scratch, old_bytes, new_bytes, n, kind, frame, fault);
    }
    delta_summer_begin(&summer, kind);
    Err err = encode_overwrite(old_bytes, new_bytes, n, &summer, frame, fault);
    delta_summer_end(&summer, frame->bytes ? frame->sum : NULL);
    return err;
}

/* ---- applying ----------------------------------------------------------------------------- */

Err delta_damaged(Fault *fault, const char *words)
{
    return fault_set(fault, ERR_FORMAT, "publish the version again", "the delta is damaged: %s",
                     words);
}

static Err overwrite(const unsigned char *payload, size_t payload_n, unsigned char *bytes,
                     size_t n, Fault *fault)
{
    uint64_t count = payload_n >= 4 ? read_u32(payload) : 0;
    if (payload_n < 4 || payload_n != 4 + 5 * count) {
        return delta_damaged(fault, "its count does not fit its length");
    }
    const unsigned char *positions = payload + 4;
    const unsigned char *values = positions + 4 * count;
    int64_t last = -1;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t at = read_u32(positions + 4 * i);
        if ((int64_t)at <= last || at >= n) {
            return delta_damaged(fault, "a position is out of order or out of the tensor");
        }
        bytes[at] = values[i];
        last = at;
    }
    return ERR_OK;
}

Err delta_apply(DeltaScratch *scratch, DeltaEncoding encoding, const void *frame, size_t frame_n,
                void *bytes, size_t n, DeltaSum kind, char sum[DELTA_SUM_TEXT], Fault *fault)
{
    unsigned long long size = ZSTD_getFrameContentSize(frame, frame_n);
    uint64_t most = encoding == DELTA_XOR ? n : 4 + 5 * (uint64_t)n;
    if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN) {
        return delta_damaged(fault, "no zstd frame that states its size");
    }
    if (size > most || (encoding == DELTA_XOR && size != n)) {
        return delta_damaged(fault, "it is for a tensor of another length");
    }
    if (encoding == DELTA_XOR) {
        return delta_xor_apply(scratch, frame, frame_n, bytes, n, kind, sum, fault);
    }
    unsigned char *payload = malloc(size ? size : 1);
    if (!payload) {
        return fault_set(fault, ERR_MEMORY, NULL, "no memory for a delta of %llu bytes", size);
    }
    size_t got = ZSTD_decompress(payload, size, frame, frame_n);
    Err err = ERR_OK;
    if (ZSTD_isError(got) || got != size) {
        err = delta_damaged(fault, "zstd cannot read it");
    } else {
        err = overwrite(payload, got, bytes, n, fault);
    }
    if (err == ERR_OK) {
        delta_sum(kind, bytes, n, sum);
    }
    free(payload);
    return err;
}
