/* A checkpoint directory as one set of tensors. The index is read strictly: a shard name with a
 * slash would let a checkpoint read files outside its directory. */
#include "core/model/safetensors.h"

#include "core/base/fs.h"
#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/base/utf8.h"
#include "core/model/json_scan.h"

#include <stdlib.h>
#include <string.h>

enum { INDEX_BYTES_MAX = 64 << 20, SHARDS_MAX = 4096, NAME_MAX_BYTES = 255 };

struct StSet {
    StFile **files;
    char **shards; /* file names, order of first mention */
    size_t file_count;
    const StTensor **tensors; /* shard by shard, in data order */
    size_t count, capacity;
    uint32_t *slots; /* 1 + index, open addressing */
    size_t slot_count;
};

typedef struct Mapping { /* one line of weight_map */
    char *name;
    size_t name_n;
    size_t shard;
} Mapping;

typedef struct Index {
    Mapping *items;
    size_t count, capacity;
} Index;

static void index_free(Index *index)
{
    for (size_t i = 0; i < index->count; i++) {
        free(index->items[i].name);
    }
    free(index->items);
}

static void add_tensor(StSet *set, const StTensor *tensor)
{
    if (set->count == set->capacity) {
        set->capacity = set->capacity == 0 ? 256 : set->capacity * 2;
        set->tensors = xrealloc(set->tensors, set->capacity, sizeof(StTensor *));
    }
    set->tensors[set->count++] = tensor;
}

static size_t slot_of(const StSet *set, Str name)
{
    size_t mask = set->slot_count - 1;
    size_t i = (size_t)hash64(name.p, name.n, 0) & mask;
    while (set->slots[i] != 0) {
        const StTensor *t = set->tensors[set->slots[i] - 1];
        if (str_equal((Str){t->name, t->name_n}, name)) {
            break;
        }
        i = (i + 1) & mask;
    }
    return i;
}

static Err index_tensors(StSet *set, const char *dir, Fault *fault)
{
    set->slot_count = 16;
    while (set->slot_count < set->count * 2) {
        set->slot_count *= 2;
    }
    set->slots = xcalloc(set->slot_count, sizeof *set->slots);
    for (size_t i = 0; i < set->count; i++) {
        const StTensor *t = set->tensors[i];
        size_t slot = slot_of(set, (Str){t->name, t->name_n});
        if (set->slots[slot] != 0) {
            return fault_set(fault, ERR_FORMAT, "fetch the checkpoint again",
                             "%s: tensor %s stands in two shards", dir, t->name);
        }
        set->slots[slot] = (uint32_t)i + 1;
    }
    return ERR_OK;
}

static bool shard_name_good(Str name)
{
    size_t at;
    return name.n > 0 && name.n <= NAME_MAX_BYTES && !str_find(name, STR("/"), &at) &&
           memchr(name.p, 0, name.n) == NULL && !str_equal(name, STR(".")) &&
           !str_equal(name, STR(".."));
}

/* Index of the shard in set->shards, added when new. */
static bool shard_of(StSet *set, Str name, JsonScan *s, size_t *out)
{
    if (!shard_name_good(name)) {
        return json_scan_fail(s, "a shard is no plain file name");
    }
    for (size_t i = set->file_count; i > 0; i--) { /* the last one is the likely one */
        if (str_equal(str_from(set->shards[i - 1]), name)) {
            *out = i - 1;
            return true;
        }
    }
    if (set->file_count == SHARDS_MAX) {
        return json_scan_fail(s, "more than 4096 shards");
    }
    set->shards = xrealloc(set->shards, set->file_count + 1, sizeof(char *));
    set->shards[set->file_count] = xstrndup(name.p, name.n);
    *out = set->file_count++;
    return true;
}

static bool parse_map(JsonScan *s, StSet *set, Index *index)
{
    Text key_text;
    Text value_text;
    Str key;
    Str value;
    text_init(&key_text, 1 << 20);
    text_init(&value_text, 1 << 20);
    bool good = json_scan_object(s);
    while (good && json_scan_key(s, &key_text, &key)) {
        size_t shard = 0;
        good = json_scan_string(s, &value_text, &value) && shard_of(set, value, s, &shard);
        if (!good) {
            break;
        }
        if (index->count == index->capacity) {
            index->capacity = index->capacity == 0 ? 256 : index->capacity * 2;
            index->items = xrealloc(index->items, index->capacity, sizeof *index->items);
        }
        char *name = xcalloc(key.n + 1, 1);
        if (key.n > 0) {
            memcpy(name, key.p, key.n);
        }
        index->items[index->count++] = (Mapping){name, key.n, shard};
    }
    text_free(&key_text);
    text_free(&value_text);
    return good && s->error == NULL;
}

static Err parse_index(const char *path, StSet *set, Index *index, Fault *fault)
{
    Text text;
    Text scratch;
    Str key;
    bool seen = false;
    text_init(&text, INDEX_BYTES_MAX);
    text_init(&scratch, 1 << 20);
    Err err = fs_read(path, &text, fault);
    if (err != ERR_OK) {
        goto done;
    }
    JsonScan s = json_scan(text_str(&text));
    if (!utf8_valid(text_str(&text))) {
        json_scan_fail(&s, "invalid UTF-8");
    }
    bool good = json_scan_object(&s);
    while (good && json_scan_key(&s, &scratch, &key)) {
        if (str_equal(key, STR("weight_map")) && !seen) {
            seen = true;
            good = parse_map(&s, set, index);
        } else {
            good = json_scan_skip(&s);
        }
    }
    if (!good || !json_scan_end(&s)) {
        err = fault_set(fault, ERR_FORMAT, "fetch the checkpoint again",
                        "%s is not a shard index: %s at byte %zu", path, s.error, s.at);
    } else if (!seen || index->count == 0) {
        err = fault_set(fault, ERR_FORMAT, "fetch the checkpoint again",
                        "%s has no weight_map with tensors in it", path);
    }
done:
    text_free(&text);
    text_free(&scratch);
    return err;
}

static Err open_shards(const char *dir, StSet *set, const Index *index, Fault *fault)
{
    set->files = xcalloc(set->file_count + 1, sizeof(StFile *));
    for (size_t i = 0; i < set->file_count; i++) {
        char *path = fs_join(dir, set->shards[i]);
        Err err = st_open(path, &set->files[i], fault);
        free(path);
        if (err != ERR_OK) {
            return err;
        }
        for (size_t k = 0; k < st_count(set->files[i]); k++) {
            add_tensor(set, st_at(set->files[i], k));
        }
    }
    Err err = index_tensors(set, dir, fault);
    for (size_t i = 0; i < index->count && err == ERR_OK; i++) {
        const Mapping *m = &index->items[i];
        size_t slot = slot_of(set, (Str){m->name, m->name_n});
        if (set->slots[slot] == 0) {
            err = fault_set(fault, ERR_FORMAT, "fetch the checkpoint again",
                            "%s: the index names tensor %s in %s, which does not hold it", dir,
                            m->name, set->shards[m->shard]);
        }
    }
    return err;
}

Err st_set_open(const char *dir, StSet **out, Fault *fault)
{
    StSet *set = xcalloc(1, sizeof *set);
    Index index = {0};
    char *single = fs_join(dir, "model.safetensors");
    char *sharded = fs_join(dir, "model.safetensors.index.json");
    Err err = ERR_OK;
    *out = NULL;
    if (fs_exists(single)) {
        set->shards = xcalloc(1, sizeof(char *));
        set->shards[0] = xstrdup("model.safetensors");
        set->file_count = 1;
    } else if (fs_exists(sharded)) {
        err = parse_index(sharded, set, &index, fault);
    } else {
        err = fault_set(fault, ERR_NOT_FOUND, "give a Hugging Face checkpoint directory",
                        "%s has neither model.safetensors nor model.safetensors.index.json", dir);
    }
    if (err == ERR_OK) {
        err = open_shards(dir, set, &index, fault);
    }
    free(single);
    free(sharded);
    index_free(&index);
    if (err != ERR_OK) {
        st_set_close(set);
        return err;
    }
    *out = set;
    return ERR_OK;
}

void st_set_close(StSet *set)
{
    if (set == NULL) {
        return;
    }
    for (size_t i = 0; i < set->file_count; i++) {
        if (set->files != NULL) {
            st_close(set->files[i]);
        }
        free(set->shards[i]);
    }
    free(set->files);
    free(set->shards);
    free(set->tensors);
    free(set->slots);
    free(set);
}

size_t st_set_count(const StSet *set)
{
    return set->count;
}

const StTensor *st_set_at(const StSet *set, size_t index)
{
    return index < set->count ? set->tensors[index] : NULL;
}

const StTensor *st_set_find(const StSet *set, const char *name)
{
    if (set->slot_count == 0) {
        return NULL;
    }
    size_t slot = slot_of(set, str_from(name));
    return set->slots[slot] == 0 ? NULL : set->tensors[set->slots[slot] - 1];
}
