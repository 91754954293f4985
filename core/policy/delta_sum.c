#include "core/policy/delta_sum.h"

#include <stdio.h>

enum { ADLER_RUN = 5552, ADLER_MOD = 65521 }; /* that many bytes before a sum could overflow */

void delta_summer_begin(DeltaSummer *summer, DeltaSum kind)
{
    *summer = (DeltaSummer){.kind = kind, .a = 1};
    summer->hasher = kind == DELTA_SUM_XXH3_128 ? hasher_new() : NULL;
}

static void add_adler(DeltaSummer *summer, const unsigned char *p, size_t n)
{
    while (n > 0) {
        size_t run = n < ADLER_RUN ? n : ADLER_RUN;
        for (size_t i = 0; i < run; i++) {
            summer->a += p[i];
            summer->b += summer->a;
        }
        summer->a %= ADLER_MOD;
        summer->b %= ADLER_MOD;
        p += run;
        n -= run;
    }
}

void delta_summer_add(DeltaSummer *summer, const void *bytes, size_t n)
{
    if (summer->hasher) {
        hasher_add(summer->hasher, bytes, n);
    } else {
        add_adler(summer, bytes, n);
    }
}

void delta_summer_end(DeltaSummer *summer, char out[DELTA_SUM_TEXT])
{
    if (out && summer->hasher) {
        hasher_text(summer->hasher, out);
    } else if (out) {
        (void)snprintf(out, DELTA_SUM_TEXT, "%08x", summer->b << 16 | summer->a);
    }
    hasher_free(summer->hasher);
    summer->hasher = NULL;
}

void delta_sum(DeltaSum kind, const void *bytes, size_t n, char out[DELTA_SUM_TEXT])
{
    DeltaSummer summer;
    delta_summer_begin(&summer, kind);
    delta_summer_add(&summer, bytes, n);
    delta_summer_end(&summer, out);
}
