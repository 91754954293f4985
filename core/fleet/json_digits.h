/* Private to fleet: decimal digits eight at a time in a 64-bit word, for json_cursor.c and
 * generate_lists.c. Callers have checked that the bytes may be read. */
#ifndef ROLLTOP_FLEET_JSON_DIGITS_H
#define ROLLTOP_FLEET_JSON_DIGITS_H

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { DIGITS_WORD = 8, DIGITS_TENS = 23 };

/* Powers of ten that a double holds exactly. */
static const double digits_tens[DIGITS_TENS] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Eight bytes, the first one lowest. */
static inline uint64_t digits_load(const char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return le64toh(word);
}

/* How many of the eight bytes are digits, from the first one on. A byte over 9 (after the digits'
 * common bits are taken out) sets its top bit; a carry can only reach bytes behind it. */
static inline unsigned digits_run(uint64_t word)
{
    uint64_t bare = word ^ 0x3030303030303030u;
    uint64_t others = ((bare + 0x7676767676767676u) | bare) & 0x8080808080808080u;
    return others ? (unsigned)__builtin_ctzll(others) / 8 : DIGITS_WORD;
}

/* Value of the first n digits, 1 <= n <= 8: shifted so that zeros stand in front, then summed in
 * pairs, fours and all. */
static inline uint32_t digits_value(uint64_t word, unsigned n)
{
    uint64_t bare = (word ^ 0x3030303030303030u) << (8 * (DIGITS_WORD - n));
    bare = bare * 10 + (bare >> 8);
    uint64_t low = (bare & 0x000000FF000000FFu) * 0x000F424000000064u;
    uint64_t high = ((bare >> 16) & 0x000000FF000000FFu) * 0x0000271000000001u;
    return (uint32_t)((low + high) >> 32);
}

/* The nearest float to the double nearest to digits / 10^below, 0 <= below < DIGITS_TENS; false
 * when this way cannot tell. digits / 10^below in doubles is off by at most two units in the last
 * place (the conversion of digits over 2^53 and one division each round once), so its upper bits
 * decide, unless the 29 bits that a float drops lie so near to one half that two units could turn
 * the decision. */
static inline bool digits_to_float(uint64_t digits, unsigned below, float *out)
{
    double value = (double)digits / digits_tens[below];
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    int64_t dropped = (int64_t)(bits & 0x1FFFFFFF) - 0x10000000;
    *out = (float)value; /* 1e-22 at least, or 0: no float here is subnormal */
    return dropped < -8 || dropped > 8;
}

#endif
