/* Private to policy: the checksum of a tensor, made piece by piece while the pieces are in the
 * cache for another reason. */
#ifndef ROLLTOP_POLICY_DELTA_SUM_H
#define ROLLTOP_POLICY_DELTA_SUM_H

#include "core/base/hash.h"
#include "core/policy/delta.h"

enum { DELTA_BLOCK = 1 << 17 }; /* a piece: fits the second-level cache several times */

typedef struct DeltaSummer {
    DeltaSum kind;
    Hasher *hasher; /* NULL: adler32 */
    uint32_t a, b;
} DeltaSummer;

void delta_summer_begin(DeltaSummer *summer, DeltaSum kind);
void delta_summer_add(DeltaSummer *summer, const void *bytes, size_t n);
/* Writes the sum of what was added; `out` NULL: it is not wanted. Frees what the summer holds. */
void delta_summer_end(DeltaSummer *summer, char out[DELTA_SUM_TEXT]);

#endif
