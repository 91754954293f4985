#include "store/blob.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { FORMAT_RAW = 0, FORMAT_ZSTD = 1, ZSTD_HEAD = 5, SMALL = 64 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "blobs are little-endian");

struct Packer {
    ZSTD_CCtx *zstd;
    struct {
        unsigned char *p;
        size_t capacity;
    } slots[PACK_SLOTS];
};

Packer *packer_new(void)
{
    Packer *packer = xcalloc(1, sizeof *packer);
    packer->zstd = ZSTD_createCCtx();
    return packer;
}

void packer_free(Packer *packer)
{
    if (packer == NULL) {
        return;
    }
    ZSTD_freeCCtx(packer->zstd);
    for (int i = 0; i < PACK_SLOTS; i++) {
        free(packer->slots[i].p);
    }
    free(packer);
}

Packed pack_bytes(Packer *packer, int slot, const void *bytes, size_t n)
{
    if (bytes == NULL || n > BLOB_RAW_MAX) {
        return (Packed){NULL, 0};
    }
    size_t need = ZSTD_HEAD + ZSTD_compressBound(n);
    if (packer->slots[slot].capacity < need) {
        packer->slots[slot].p = xrealloc(packer->slots[slot].p, need, 1);
        packer->slots[slot].capacity = need;
    }
    unsigned char *out = packer->slots[slot].p;
    if (n >= SMALL && packer->zstd != NULL) {
        size_t got = ZSTD_compressCCtx(packer->zstd, out + ZSTD_HEAD, need - ZSTD_HEAD, bytes, n,
                                       1);
        if (!ZSTD_isError(got) && got + ZSTD_HEAD < n - n / 8) {
            uint32_t size = (uint32_t)n;
            out[0] = FORMAT_ZSTD;
            memcpy(out + 1, &size, sizeof size);
            return (Packed){out, got + ZSTD_HEAD};
        }
    }
    out[0] = FORMAT_RAW;
    if (n > 0) {
        memcpy(out + 1, bytes, n);
    }
    return (Packed){out, n + 1};
}

bool unpack_size(const void *blob, size_t n, size_t *out)
{
    const unsigned char *p = blob;
    if (p == NULL || n == 0) {
        return false;
    }
    if (p[0] == FORMAT_RAW) {
        *out = n - 1;
        return n - 1 <= BLOB_RAW_MAX;
    }
    if (p[0] != FORMAT_ZSTD || n < ZSTD_HEAD) {
        return false;
    }
    uint32_t size = 0;
    memcpy(&size, p + 1, sizeof size);
    /* The frame states its size too; a file that lies about either is refused unallocated. */
    unsigned long long frame = ZSTD_getFrameContentSize(p + ZSTD_HEAD, n - ZSTD_HEAD);
    *out = size;
    return size <= BLOB_RAW_MAX && frame == size;
}

bool unpack_into(const void *blob, size_t n, void *out, size_t out_n)
{
    const unsigned char *p = blob;
    size_t raw = 0;
    if (!unpack_size(blob, n, &raw) || raw != out_n) {
        return false;
    }
    if (p[0] == FORMAT_RAW) {
        if (raw > 0) {
            memcpy(out, p + 1, raw);
        }
        return true;
    }
    return ZSTD_decompress(out, out_n, p + ZSTD_HEAD, n - ZSTD_HEAD) == out_n;
}
