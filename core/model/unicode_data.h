/* Generated tables (tests/data/unicode/make_unicode_data.py); private to unicode.c. */
#ifndef ROLLTOP_MODEL_UNICODE_DATA_H
#define ROLLTOP_MODEL_UNICODE_DATA_H

#include <stddef.h>
#include <stdint.h>

typedef struct UnicodeRange {
    uint32_t first, last;
} UnicodeRange;

typedef struct UnicodeCombining {
    uint32_t first, last;
    uint8_t combining_class; /* never 0 */
} UnicodeCombining;

typedef struct UnicodeDecomposition { /* canonical; second is 0 for a singleton */
    uint32_t code, first, second;
} UnicodeDecomposition;

/* All sorted by their first number; unicode_pairs holds indices of the decompositions that
 * compose again, sorted by (first, second). */
extern const UnicodeRange unicode_letters[];
extern const size_t unicode_letters_count;
extern const UnicodeRange unicode_numbers[];
extern const size_t unicode_numbers_count;
extern const UnicodeCombining unicode_combining[];
extern const size_t unicode_combining_count;
extern const UnicodeDecomposition unicode_decompositions[];
extern const size_t unicode_decompositions_count;
extern const uint16_t unicode_pairs[];
extern const size_t unicode_pairs_count;

#endif
