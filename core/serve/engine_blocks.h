/* Paged KV blocks: who holds which, and which full blocks can be shared by prefix. Pure.
 *
 * A block is free, held (references > 0) or kept (no reference, but named by the hash of its whole
 * prefix: evictable, oldest first). Names are chained hashes over full blocks. */
#ifndef ROLLTOP_SERVE_ENGINE_BLOCKS_H
#define ROLLTOP_SERVE_ENGINE_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Blocks Blocks;

Blocks *blocks_new(int count);
void blocks_free(Blocks *blocks);
int blocks_count(const Blocks *blocks);     /* as made, or as capped */
int blocks_available(const Blocks *blocks); /* free or evictable, within the cap; never < 0 */
int blocks_held(const Blocks *blocks);
int blocks_kept(const Blocks *blocks);
/* Fewer blocks than made, from now on (fault kv_cap); count < 0 or beyond: all. */
void blocks_cap(Blocks *blocks, int count);

/* One block with one reference; false when none is available. Evicts the oldest kept one. */
bool blocks_take(Blocks *blocks, int32_t *id);
void blocks_ref(Blocks *blocks, int32_t id);
/* Drops one reference; a named and ready block is kept, any other becomes free. */
void blocks_release(Blocks *blocks, int32_t id);

/* Block of that name, without taking a reference. `ready`: its content is computed. */
bool blocks_find(const Blocks *blocks, uint64_t name, int32_t *id, bool *ready);
/* Names a held block unless the name or the block's own name exists. */
void blocks_name(Blocks *blocks, int32_t id, uint64_t name, bool ready);
void blocks_ready(Blocks *blocks, int32_t id);
/* Forgets every name; kept blocks become free. */
void blocks_forget(Blocks *blocks);

#endif
