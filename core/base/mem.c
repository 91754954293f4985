#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void out_of_memory(size_t bytes)
{
    fprintf(stderr, "rolltop: out of memory (%zu bytes asked for).\n", bytes);
    abort();
}

bool size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

void *xcalloc(size_t count, size_t size)
{
    if (count == 0 || size == 0) {
        count = size = 1;
    }
    void *p = calloc(count, size);
    if (!p) {
        out_of_memory(count * size);
    }
    return p;
}

void *xrealloc(void *p, size_t count, size_t size)
{
    size_t bytes = 0;
    if (!size_mul(count, size, &bytes)) {
        out_of_memory(SIZE_MAX);
    }
    void *grown = realloc(p, bytes ? bytes : 1);
    if (!grown) {
        out_of_memory(bytes);
    }
    return grown;
}

char *xstrndup(const char *s, size_t n)
{
    size_t length = strnlen(s, n);
    char *copy = xcalloc(length + 1, 1);
    memcpy(copy, s, length);
    return copy;
}

char *xstrdup(const char *s)
{
    return xstrndup(s, strlen(s));
}

char *xasprintf(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char *out = NULL;
    int n = vasprintf(&out, format, args);
    va_end(args);
    if (n < 0) {
        out_of_memory(0);
    }
    return out;
}

Err try_calloc(size_t count, size_t size, size_t max_bytes, void **out)
{
    *out = NULL;
    size_t bytes = 0;
    if (!size_mul(count, size, &bytes) || bytes > max_bytes) {
        return ERR_LIMIT;
    }
    *out = calloc(count ? count : 1, size ? size : 1);
    return *out ? ERR_OK : ERR_MEMORY;
}

/* ---- arena -------------------------------------------------------------------------------- */

typedef struct Chunk {
    struct Chunk *next;
    size_t size, used;
    max_align_t data[];
} Chunk;

struct Arena {
    Chunk *first, *current;
    size_t max_bytes, used;
};

enum { ARENA_CHUNK = 64 * 1024, ARENA_ALIGN = 16 };

Arena *arena_new(size_t max_bytes)
{
    Arena *arena = xcalloc(1, sizeof *arena);
    arena->max_bytes = max_bytes;
    return arena;
}

static void free_chunks(Chunk *chunk)
{
    while (chunk) {
        Chunk *next = chunk->next;
        free(chunk);
        chunk = next;
    }
}

void arena_free(Arena *arena)
{
    if (arena) {
        free_chunks(arena->first);
        free(arena);
    }
}

void arena_reset(Arena *arena)
{
    if (arena->first) {
        free_chunks(arena->first->next);
        arena->first->next = NULL;
        arena->first->used = 0;
    }
    arena->current = arena->first;
    arena->used = 0;
}

void *arena_alloc(Arena *arena, size_t size)
{
    size_t padded = 0;
    if (!size_add(size ? size : 1, ARENA_ALIGN - 1, &padded)) {
        return NULL;
    }
    padded &= ~(size_t)(ARENA_ALIGN - 1);
    if (padded > arena->max_bytes || arena->used > arena->max_bytes - padded) {
        return NULL;
    }
    Chunk *chunk = arena->current;
    if (!chunk || chunk->size - chunk->used < padded) {
        size_t want = padded > ARENA_CHUNK ? padded : ARENA_CHUNK;
        Chunk *fresh = malloc(sizeof *fresh + want);
        if (!fresh) {
            return NULL;
        }
        *fresh = (Chunk){.size = want};
        if (chunk) {
            chunk->next = fresh;
        } else {
            arena->first = fresh;
        }
        arena->current = chunk = fresh;
    }
    void *p = (char *)chunk->data + chunk->used;
    chunk->used += padded;
    arena->used += padded;
    memset(p, 0, padded);
    return p;
}

char *arena_strndup(Arena *arena, const char *s, size_t n)
{
    char *copy = arena_alloc(arena, n + 1);
    if (copy && n) {
        memcpy(copy, s, n);
    }
    return copy;
}
