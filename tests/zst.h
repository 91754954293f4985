/* Test data that lies compressed: one function to read it whole. */
#ifndef ROLLTOP_TESTS_ZST_H
#define ROLLTOP_TESTS_ZST_H

#include "core/base/fs.h"
#include "core/base/str.h"

#include <stdio.h>
#include <zstd.h>

/* Appends the content of DATA/name to *out (text_init'ed); false, with a word, when it cannot. */
static inline bool zst_read(const char *name, Text *out)
{
    char path[512];
    Text packed;
    Fault fault = {0};
    bool good = false;
    text_init(&packed, 64 << 20);
    if (!str_format(path, sizeof path, "%s/%s", ROLLTOP_TEST_DATA, name) ||
        fs_read(path, &packed, &fault) != ERR_OK) {
        fprintf(stderr, "%s: %s\n", name, fault.sentence);
    } else {
        unsigned long long n = ZSTD_getFrameContentSize(packed.p, packed.n);
        if (n < (1ull << 30) && text_reserve(out, (size_t)n)) {
            size_t got = ZSTD_decompress(out->p + out->n, (size_t)n, packed.p, packed.n);
            good = got == n;
            out->n += good ? (size_t)n : 0;
            out->p[out->n] = '\0';
        }
    }
    text_free(&packed);
    return good;
}

#endif
