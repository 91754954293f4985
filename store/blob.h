/* Packed values of cold columns: a format byte, then the bytes, compressed where it pays.
 *   0x00 bytes                      raw
 *   0x01 uint32 raw_size, frame     zstd (little-endian size)
 * Arrays are little-endian int32 or IEEE float32, spans int32 from, int32 to, int64 version. */
#ifndef ROLLTOP_STORE_BLOB_H
#define ROLLTOP_STORE_BLOB_H

#include "core/base/mem.h"

enum { BLOB_RAW_MAX = 256 << 20 };

typedef struct Packer Packer; /* compression state and buffers, reused */
Packer *packer_new(void);
void packer_free(Packer *packer);

typedef struct Packed {
    const unsigned char *p;
    size_t n;
} Packed;
/* Valid until the same slot (0 … 3) is packed again. NULL bytes give a NULL blob. */
enum { PACK_SLOTS = 4 };
Packed pack_bytes(Packer *packer, int slot, const void *bytes, size_t n);

/* Raw size of a packed blob; false when it is malformed or larger than BLOB_RAW_MAX. */
bool unpack_size(const void *blob, size_t n, size_t *out);
/* Into a caller's buffer of exactly the raw size; false when malformed. */
bool unpack_into(const void *blob, size_t n, void *out, size_t out_n);

#endif
