/* Allocation: x-functions for small things that cannot fail usefully (they end the program with
 * one sentence), try-functions for sizes that come from a file or a socket, and an arena whose
 * content dies at once (one snapshot, one request). */
#ifndef ROLLTOP_BASE_MEM_H
#define ROLLTOP_BASE_MEM_H

#include "core/base/err.h"

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory; never NULL; 0 bytes count as 1. Free with free(). */
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *p, size_t count, size_t size); /* grown part is not zeroed */
char *xstrdup(const char *s);
char *xstrndup(const char *s, size_t n); /* copies at most n bytes and adds a NUL */
char *xasprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Zeroed memory of count*size bytes, or ERR_LIMIT when it overflows or passes `max_bytes`,
 * or ERR_MEMORY. *out is NULL on failure. Free with free(). */
Err try_calloc(size_t count, size_t size, size_t max_bytes, void **out);

/* Multiply and add without overflow: false when the result does not fit. */
bool size_mul(size_t a, size_t b, size_t *out);
bool size_add(size_t a, size_t b, size_t *out);

/* Arena: bump allocation in chunks, freed all at once. Not thread-safe. */
typedef struct Arena Arena;
Arena *arena_new(size_t max_bytes);
void arena_free(Arena *arena);
void arena_reset(Arena *arena);                 /* keeps the first chunk */
void *arena_alloc(Arena *arena, size_t size);   /* zeroed, 16-byte aligned; NULL at the bound */
char *arena_strndup(Arena *arena, const char *s, size_t n); /* NULL at the bound */

#endif
