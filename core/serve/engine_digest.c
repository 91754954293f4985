#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/serve/engine_local.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CACHE_SLOTS = 16, FILES_MAX = 4096, FILE_MAX = 1 << 30 };

typedef struct CacheSlot {
    char *dir;
    uint64_t stamp; /* of names, sizes and times of the directory's files */
    char digest[DIGEST_TEXT];
} CacheSlot;

struct DigestCache {
    pthread_mutex_t lock;
    CacheSlot slots[CACHE_SLOTS];
    int next;
};

DigestCache *digest_cache_new(void)
{
    DigestCache *cache = xcalloc(1, sizeof *cache);
    pthread_mutex_init(&cache->lock, NULL);
    return cache;
}

void digest_cache_free(DigestCache *cache)
{
    if (cache) {
        for (int i = 0; i < CACHE_SLOTS; i++) {
            free(cache->slots[i].dir);
        }
        pthread_mutex_destroy(&cache->lock);
        free(cache);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Names of the plain files of `dir`, sorted; each malloc'ed. */
static Err list_files(const char *dir, char ***names, int *count, Fault *fault)
{
    DIR *stream = opendir(dir);
    if (!stream) {
        return fault_set_sys(fault, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno,
                             "publish the checkpoint first, or correct the path",
                             "cannot read the policy directory %s", dir);
    }
    *names = xcalloc(FILES_MAX, sizeof **names);
    *count = 0;
    for (const struct dirent *entry; (entry = readdir(stream)) && *count < FILES_MAX;) {
        if (entry->d_name[0] != '.') {
            (*names)[(*count)++] = xstrdup(entry->d_name);
        }
    }
    closedir(stream);
    qsort(*names, (size_t)*count, sizeof **names, by_name);
    return ERR_OK;
}

static uint64_t stamp_of(const char *dir, char **names, int count)
{
    uint64_t stamp = hash64(dir, strlen(dir), 0);
    for (int i = 0; i < count; i++) {
        char *path = fs_join(dir, names[i]);
        struct stat info;
        memset(&info, 0, sizeof info);
        if (stat(path, &info) == 0) {
            int64_t facts[4] = {(int64_t)info.st_size, (int64_t)info.st_mtim.tv_sec,
                                (int64_t)info.st_mtim.tv_nsec, (int64_t)info.st_ino};
            stamp = hash64(facts, sizeof facts, stamp);
        }
        stamp = hash64(names[i], strlen(names[i]), stamp);
        free(path);
    }
    return stamp;
}

static bool is_checkpoint(char **names, int count)
{
    for (int i = 0; i < count; i++) {
        if (str_ends(str_from(names[i]), STR(".safetensors")) ||
            strcmp(names[i], "model.safetensors.index.json") == 0) {
            return true;
        }
    }
    return false;
}

static Err digest_files(const char *dir, char **names, int count, char out[DIGEST_TEXT],
                        Fault *fault)
{
    Hasher *hasher = hasher_new();
    Err err = ERR_OK;
    int files = 0;
    for (int i = 0; i < count && !err; i++) {
        char *path = fs_join(dir, names[i]);
        struct stat info;
        if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
            Text text;
            text_init(&text, FILE_MAX);
            err = fs_read(path, &text, fault);
            hasher_add(hasher, names[i], strlen(names[i]) + 1);
            hasher_add(hasher, text_c(&text), text.n);
            text_free(&text);
            files++;
        }
        free(path);
    }
    if (!err && files == 0) {
        err = fault_set(fault, ERR_NOT_FOUND, "publish the checkpoint first",
                        "the policy directory %s holds no file", dir);
    }
    hasher_text(hasher, out);
    hasher_free(hasher);
    return err;
}

static Err digest_now(const char *dir, char **names, int count, char out[DIGEST_TEXT],
                      Fault *fault)
{
    if (!is_checkpoint(names, count)) {
        return digest_files(dir, names, count, out, fault);
    }
    Weights *weights = NULL;
    Err err = weights_load(dir, MODEL_F32, &weights, fault);
    if (!err) {
        memcpy(out, weights_digest(weights), DIGEST_TEXT);
        weights_unref(weights);
    }
    return err;
}

Err digest_of_dir(DigestCache *cache, const char *dir, char out[DIGEST_TEXT], Fault *fault)
{
    char **names = NULL;
    int count = 0;
    Err err = list_files(dir, &names, &count, fault);
    if (err) {
        return err;
    }
    uint64_t stamp = stamp_of(dir, names, count);
    /* The lock is held while digesting, so that a thousand engines told at once read it once. */
    pthread_mutex_lock(&cache->lock);
    bool found = false;
    for (int i = 0; i < CACHE_SLOTS && !found; i++) {
        const CacheSlot *slot = &cache->slots[i];
        if (slot->dir && slot->stamp == stamp && strcmp(slot->dir, dir) == 0) {
            memcpy(out, slot->digest, DIGEST_TEXT);
            found = true;
        }
    }
    if (!found) {
        err = digest_now(dir, names, count, out, fault);
        if (!err) {
            CacheSlot *slot = &cache->slots[cache->next];
            cache->next = (cache->next + 1) % CACHE_SLOTS;
            free(slot->dir);
            slot->dir = xstrdup(dir);
            slot->stamp = stamp;
            memcpy(slot->digest, out, DIGEST_TEXT);
        }
    }
    pthread_mutex_unlock(&cache->lock);
    for (int i = 0; i < count; i++) {
        free(names[i]);
    }
    free(names);
    return err;
}
