/* Arrays indexed by block id; free and kept blocks on intrusive lists; names in chained buckets. */
#include "core/serve/engine_blocks.h"

#include "core/base/mem.h"

#include <assert.h>
#include <stdlib.h>

typedef struct Block {
    uint64_t name;
    int32_t references, older, newer; /* neighbours on the kept list; `newer` links free ones */
    int32_t next_in_bucket;
    bool named, ready;
} Block;

struct Blocks {
    Block *blocks;
    int32_t *buckets;
    uint32_t bucket_mask;
    int count, cap, held, kept;
    int names; /* blocks that are named: most flushes find none */
    int32_t first_free, oldest, newest;
};

Blocks *blocks_new(int count)
{
    assert(count > 0);
    Blocks *blocks = xcalloc(1, sizeof *blocks);
    blocks->count = blocks->cap = count;
    blocks->blocks = xcalloc((size_t)count, sizeof *blocks->blocks);
    uint32_t buckets = 16;
    while (buckets < (uint32_t)count) {
        buckets *= 2;
    }
    blocks->bucket_mask = buckets - 1;
    blocks->buckets = xcalloc(buckets, sizeof *blocks->buckets);
    for (uint32_t i = 0; i < buckets; i++) {
        blocks->buckets[i] = -1;
    }
    for (int i = 0; i < count; i++) {
        blocks->blocks[i].newer = i + 1 < count ? i + 1 : -1;
    }
    blocks->oldest = blocks->newest = -1;
    return blocks;
}

void blocks_free(Blocks *blocks)
{
    if (blocks) {
        free(blocks->blocks);
        free(blocks->buckets);
        free(blocks);
    }
}

int blocks_count(const Blocks *blocks)
{
    return blocks->cap;
}

int blocks_available(const Blocks *blocks)
{
    return blocks->cap > blocks->held ? blocks->cap - blocks->held : 0;
}

int blocks_held(const Blocks *blocks)
{
    return blocks->held;
}

int blocks_kept(const Blocks *blocks)
{
    return blocks->kept;
}

void blocks_cap(Blocks *blocks, int count)
{
    blocks->cap = count < 0 || count > blocks->count ? blocks->count : count;
}

static void unlink_kept(Blocks *blocks, int32_t id)
{
    Block *block = &blocks->blocks[id];
    if (block->older >= 0) {
        blocks->blocks[block->older].newer = block->newer;
    } else {
        blocks->oldest = block->newer;
    }
    if (block->newer >= 0) {
        blocks->blocks[block->newer].older = block->older;
    } else {
        blocks->newest = block->older;
    }
    blocks->kept--;
}

static void unname(Blocks *blocks, int32_t id)
{
    Block *block = &blocks->blocks[id];
    int32_t *at = &blocks->buckets[block->name & blocks->bucket_mask];
    while (*at != id) {
        at = &blocks->blocks[*at].next_in_bucket;
    }
    *at = block->next_in_bucket;
    block->named = block->ready = false;
    blocks->names--;
}

static void give_free(Blocks *blocks, int32_t id)
{
    blocks->blocks[id].newer = blocks->first_free;
    blocks->first_free = id;
}

bool blocks_take(Blocks *blocks, int32_t *id)
{
    if (blocks_available(blocks) == 0) {
        return false;
    }
    int32_t got = blocks->first_free;
    if (got >= 0) {
        blocks->first_free = blocks->blocks[got].newer;
    } else {
        got = blocks->oldest;
        assert(got >= 0);
        unlink_kept(blocks, got);
        unname(blocks, got);
    }
    blocks->blocks[got].references = 1;
    blocks->held++;
    *id = got;
    return true;
}

void blocks_ref(Blocks *blocks, int32_t id)
{
    Block *block = &blocks->blocks[id];
    if (block->references++ == 0) {
        assert(block->named);
        unlink_kept(blocks, id);
        blocks->held++;
    }
}

void blocks_release(Blocks *blocks, int32_t id)
{
    Block *block = &blocks->blocks[id];
    assert(block->references > 0);
    if (--block->references > 0) {
        return;
    }
    blocks->held--;
    if (block->named && !block->ready) {
        unname(blocks, id);
    }
    if (!block->named) {
        give_free(blocks, id);
        return;
    }
    block->older = blocks->newest;
    block->newer = -1;
    if (blocks->newest >= 0) {
        blocks->blocks[blocks->newest].newer = id;
    } else {
        blocks->oldest = id;
    }
    blocks->newest = id;
    blocks->kept++;
}

bool blocks_find(const Blocks *blocks, uint64_t name, int32_t *id, bool *ready)
{
    for (int32_t at = blocks->buckets[name & blocks->bucket_mask]; at >= 0;
         at = blocks->blocks[at].next_in_bucket) {
        if (blocks->blocks[at].name == name) {
            *id = at;
            *ready = blocks->blocks[at].ready;
            return true;
        }
    }
    return false;
}

void blocks_name(Blocks *blocks, int32_t id, uint64_t name, bool ready)
{
    int32_t other = -1;
    bool other_ready = false;
    Block *block = &blocks->blocks[id];
    assert(block->references > 0);
    if (block->named || blocks_find(blocks, name, &other, &other_ready)) {
        return;
    }
    block->name = name;
    block->named = true;
    block->ready = ready;
    blocks->names++;
    block->next_in_bucket = blocks->buckets[name & blocks->bucket_mask];
    blocks->buckets[name & blocks->bucket_mask] = id;
}

void blocks_ready(Blocks *blocks, int32_t id)
{
    blocks->blocks[id].ready = blocks->blocks[id].named;
}

void blocks_forget(Blocks *blocks)
{
    while (blocks->oldest >= 0) {
        int32_t id = blocks->oldest;
        unlink_kept(blocks, id);
        unname(blocks, id);
        give_free(blocks, id);
    }
    for (int32_t i = 0; i < blocks->count && blocks->names > 0; i++) {
        if (blocks->blocks[i].named) {
            unname(blocks, i);
        }
    }
}
