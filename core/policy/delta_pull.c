/* pull_weights: a local checkpoint directory follows the published versions. A patched file is
 * written beside the old one, its tensors are checked against the published checksums, and once all
 * of a version are right they take the old ones' places: a wrong base, a damaged delta or a full
 * disk leaves version and bytes as they were, and trying again is safe. */
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/model/checkpoint.h"
#include "core/model/digest.h"
#include "core/policy/delta_each.h"
#include "core/policy/delta_index.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MAX = 4096, COPY_CHUNK = 1 << 20 };

/* ---- files -------------------------------------------------------------------------------- */

static Err copy_file(const char *from, const char *to, Fault *fault)
{
    Err err = ERR_OK;
    char *chunk = malloc(COPY_CHUNK);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (in < 0 || out < 0 || !chunk) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s cannot be copied to %s", from, to);
        goto done;
    }
    for (ssize_t n = read(in, chunk, COPY_CHUNK); n != 0 && err == ERR_OK;
         n = read(in, chunk, COPY_CHUNK)) {
        if (n < 0) {
            err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s cannot be read", from);
        } else if (!fs_write_all(out, chunk, (size_t)n)) {
            err = fault_set_sys(fault, ERR_IO, errno, "make room", "writing %s failed", to);
        }
    }
    if (err == ERR_OK && fsync(out) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, "make room", "writing %s failed", to);
    }
done:
    if (in >= 0) {
        (void)close(in);
    }
    if (out >= 0) {
        (void)close(out);
    }
    free(chunk);
    return err;
}

/* Top-level files only; others are removed from `local` first. */
static Err copy_checkpoint(const char *from, const char *local, Fault *fault)
{
    Err err = ERR_OK;
    for (int pass = 0; pass < 2 && err == ERR_OK; pass++) {
        const char *folder = pass == 0 ? local : from;
        DIR *dir = opendir(folder);
        if (!dir) {
            return fault_set_sys(fault, ERR_NOT_FOUND, errno, NULL, "%s cannot be read", folder);
        }
        for (struct dirent *e = readdir(dir); e && err == ERR_OK; e = readdir(dir)) {
            struct stat info;
            char *path = fs_join(folder, e->d_name);
            char *to = fs_join(local, e->d_name);
            if (stat(path, &info) == 0 && S_ISREG(info.st_mode)) {
                if (pass == 0) {
                    (void)unlink(path);
                } else {
                    err = copy_file(path, to, fault);
                }
            }
            free(path);
            free(to);
        }
        closedir(dir);
    }
    return err;
}

static Err state_write(const char *local, int64_t version, Fault *fault)
{
    char text[64];
    (void)str_format(text, sizeof text, "{\"version\": \"%06lld\"}", (long long)version);
    char *path = fs_join(local, ".weight_sync/state.json");
    Err err = fs_write_atomic(path, text, strlen(text), fault);
    free(path);
    return err;
}

static int64_t state_read(const char *local)
{
    char *path = fs_join(local, ".weight_sync/state.json");
    cJSON *json = NULL;
    int64_t version = -1;
    if (fs_exists(path) && delta_read_json(path, &json, NULL) == ERR_OK) {
        version = delta_number_of(json, "version");
    }
    cJSON_Delete(json);
    free(path);
    return version;
}

/* ---- one delta ---------------------------------------------------------------------------- */

typedef struct Patch { /* one local file under change */
    char *path, *partial;
    StFile *file;
    unsigned char *map;
    size_t size;
} Patch;

static void patch_close(Patch *patch)
{
    if (patch->map) {
        (void)munmap(patch->map, patch->size);
    }
    st_close(patch->file);
    if (patch->partial) {
        (void)unlink(patch->partial);
    }
    free(patch->path);
    free(patch->partial);
}

static Err patch_open(const char *path, Patch *patch, Fault *fault)
{
    *patch = (Patch){.path = xstrdup(path), .partial = xasprintf("%s.partial", path)};
    Err err = st_open(path, &patch->file, fault);
    err = err ? err : copy_file(path, patch->partial, fault);
    if (err != ERR_OK) {
        return err;
    }
    int fd = open(patch->partial, O_RDWR | O_CLOEXEC);
    struct stat info = {0};
    void *map = MAP_FAILED;
    if (fd >= 0 && fstat(fd, &info) == 0) {
        patch->size = (size_t)info.st_size;
        map = mmap(NULL, patch->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    if (map == MAP_FAILED) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s cannot be mapped", patch->partial);
    } else {
        patch->map = map;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return err;
}

static const char *sum_of(const StFile *delta, const char *name)
{
    const char *sum = st_metadata(delta, name);
    return sum ? sum : "";
}

typedef struct Patching { /* what the threads work on: each tensor is a part of its own */
    const Patch *patch;
    const StFile *delta;
    const DeltaIndex *index;
    const StTensor **changes; /* those of `delta` that lie in this local file */
} Patching;

/* Patches one tensor and proves it. */
static Err patch_tensor(void *context, DeltaScratch *scratch, size_t at, Fault *fault)
{
    const Patching *job = context;
    const StTensor *change = job->changes[at];
    const StTensor *here = st_find(job->patch->file, change->name);
    if (here->at > job->patch->size || here->bytes > job->patch->size - here->at) {
        return fault_set(fault, ERR_STATE, NULL, "%s changed while it was read",
                         job->patch->path);
    }
    void *frame = malloc(change->bytes + 1);
    if (!frame || st_read_bytes(change, 0, change->bytes, frame) != ERR_OK) {
        free(frame);
        return fault_set(fault, ERR_IO, NULL, "the delta of tensor %s cannot be read",
                         change->name);
    }
    char sum[DELTA_SUM_TEXT];
    Err err = delta_apply(scratch, job->index->encoding, frame, change->bytes,
                          job->patch->map + here->at, here->bytes, job->index->sum, sum, fault);
    free(frame);
    if (err == ERR_OK && strcmp(sum, sum_of(job->delta, change->name)) != 0) {
        err = fault_set(fault, ERR_STATE,
                        "clear the local directory, or publish this version in full",
                        "checksum mismatch of tensor %s: the delta %06lld does not fit what "
                        "is here", change->name, (long long)job->index->version);
    }
    return err;
}

/* Patches and proves every tensor of `delta` that lies in this local file. */
static Err patch_tensors(Patch *patch, const StFile *delta, const DeltaIndex *index, int *left,
                         Fault *fault)
{
    const size_t most = st_count(delta);
    Patching job = {patch, delta, index, xcalloc(most + 1, sizeof *job.changes)};
    size_t *sizes = xcalloc(most + 1, sizeof *sizes);
    size_t count = 0;
    for (size_t i = 0; i < most; i++) {
        const StTensor *here = st_find(patch->file, st_at(delta, i)->name);
        if (here) {
            sizes[count] = here->bytes;
            job.changes[count++] = st_at(delta, i);
        }
    }
    Err err = delta_each(sizes, count, patch_tensor, &job, fault);
    *left -= err == ERR_OK ? (int)count : 0;
    free(sizes);
    free(job.changes);
    return err;
}

static Err patch_keep(Patch *patch, Fault *fault)
{
    if (msync(patch->map, patch->size, MS_SYNC) != 0 ||
        rename(patch->partial, patch->path) != 0) {
        return fault_set_sys(fault, ERR_IO, errno, NULL, "%s cannot be put in place",
                             patch->path);
    }
    free(patch->partial);
    patch->partial = NULL;
    return ERR_OK;
}

static bool touches(const StFile *file, const StFile *delta)
{
    for (size_t i = 0; i < st_count(delta); i++) {
        if (st_find(file, st_at(delta, i)->name)) {
            return true;
        }
    }
    return false;
}

typedef struct Patches { /* local files under change, by all of a version's files */
    Patch *items;
    int count;
} Patches;

/* The one under change already, else a new one; *out is in the list also when it failed. */
static Err patch_of(Patches *patches, const char *path, Patch **out, Fault *fault)
{
    for (int i = 0; i < patches->count; i++) {
        if (strcmp(patches->items[i].path, path) == 0) {
            *out = &patches->items[i];
            return ERR_OK;
        }
    }
    if (patches->count == FILES_MAX) {
        return fault_set(fault, ERR_LIMIT, "publish this version in full",
                         "a delta changes more than %d files", FILES_MAX);
    }
    *out = &patches->items[patches->count++];
    return patch_open(path, *out, fault);
}

/* Every local file that a delta file touches is patched and proved, beside the one that stays. */
static Err apply_file(const char *local, const StFile *delta, const DeltaIndex *index,
                      Patches *patches, Fault *fault)
{
    int left = (int)st_count(delta);
    Err err = ERR_OK;
    DIR *dir = opendir(local);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e && err == ERR_OK; e = readdir(dir)) {
        if (!str_ends(str_from(e->d_name), STR(".safetensors"))) {
            continue;
        }
        char *path = fs_join(local, e->d_name);
        StFile *file = NULL;
        err = st_open(path, &file, fault);
        if (err == ERR_OK && touches(file, delta)) {
            Patch *patch = NULL;
            err = patch_of(patches, path, &patch, fault);
            err = err ? err : patch_tensors(patch, delta, index, &left, fault);
        }
        st_close(file);
        free(path);
    }
    if (err == ERR_OK && left > 0) {
        err = fault_set(fault, ERR_NOT_FOUND, "publish this version in full",
                        "%d tensors of delta %06lld are not in %s", left,
                        (long long)index->version, local);
    }
    if (dir) {
        closedir(dir);
    }
    return err;
}

/* A patched tensor's sum says nothing of the tensors that the delta leaves alone. So where the
 * publisher names the base by its digest, all of the copy is read first. */
static Err prove_base(const DeltaIndex *index, const char *local, Fault *fault)
{
    char digest[DIGEST_TEXT];
    ModelConfig config;
    StSet *set = NULL;
    if (!index->base_digest) {
        return ERR_OK;
    }
    Err err = model_config_load(local, &config, fault);
    err = err ? err : checkpoint_open(local, &config, &set, fault);
    err = err ? err : checkpoint_digest(set, &config, digest, fault);
    if (err == ERR_OK && strcmp(digest, index->base_digest) != 0) {
        err = fault_set(fault, ERR_STATE,
                        "clear the local directory, or publish this version in full",
                        "%s is not the base of delta %06lld: its digest is %s, not %.40s", local,
                        (long long)index->version, digest, index->base_digest);
    }
    st_set_close(set);
    return err;
}

/* Each file that the index names, once. */
static Err apply_files(const char *dir, const DeltaIndex *index, const char *local,
                       Patches *patches, Fault *fault)
{
    const cJSON *map = json_get(index->json, "weight_map");
    const char *last = NULL;
    Err err = ERR_OK;
    if (!cJSON_IsObject(map)) {
        return fault_set(fault, ERR_FORMAT, "publish this version in full",
                         "%s: its index holds no weight_map", dir);
    }
    for (const cJSON *item = map->child; item && err == ERR_OK; item = item->next) {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        if (last && strcmp(name, last) == 0) {
            continue; /* the writer names a file's tensors in a row */
        }
        if (!name[0] || strchr(name, '/')) {
            return fault_set(fault, ERR_FORMAT, NULL, "%s: its index names the file \"%.64s\"",
                             dir, name);
        }
        bool seen = false;
        for (const cJSON *before = map->child; before != item && !seen; before = before->next) {
            seen = cJSON_IsString(before) && strcmp(before->valuestring, name) == 0;
        }
        last = name;
        if (seen) {
            continue;
        }
        char *path = fs_join(dir, name);
        StFile *delta = NULL;
        err = st_open(path, &delta, fault);
        err = err ? err : apply_file(local, delta, index, patches, fault);
        st_close(delta);
        free(path);
    }
    return err;
}

/* All files are patched and proved before the first takes its place. */
static Err apply_delta(const char *dir, const DeltaIndex *index, const char *local,
                       int64_t applied, Fault *fault)
{
    if (index->version != applied + 1) {
        return fault_set(fault, ERR_FORMAT, "publish this version in full",
                         "%s: its index says that it is version %lld", dir,
                         (long long)index->version);
    }
    if (index->base != applied) {
        return fault_set(fault, ERR_STATE, "pull from a full version",
                         "out-of-order delta: %s is based on %06lld, %s holds %06lld", dir,
                         (long long)index->base, local, (long long)applied);
    }
    Patches patches = {xcalloc(FILES_MAX, sizeof *patches.items), 0};
    Err err = prove_base(index, local, fault);
    err = err ? err : apply_files(dir, index, local, &patches, fault);
    for (int i = 0; i < patches.count && err == ERR_OK; i++) {
        err = patch_keep(&patches.items[i], fault);
    }
    for (int i = 0; i < patches.count; i++) {
        patch_close(&patches.items[i]);
    }
    free(patches.items);
    return err ? err : state_write(local, index->version, fault);
}

/* A delta whose index is lost or says nothing of it would pass for a complete version, and what is
 * here would make room for it. Without a config nobody knows what is complete. */
static Err prove_complete(const char *dir, const char *model_dir, const char *local, Fault *fault)
{
    const char *const places[] = {dir, model_dir, local};
    Err err = ERR_OK;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *path = fs_join(places[i], "config.json");
        const bool there = places[i][0] && fs_exists(path);
        free(path);
        if (there) {
            ModelConfig config;
            StSet *set = NULL;
            err = model_config_load(places[i], &config, fault);
            err = err ? err : checkpoint_open(dir, &config, &set, fault);
            st_set_close(set);
            break;
        }
    }
    return err;
}

/* ---- the pull ----------------------------------------------------------------------------- */

/* The newest full version at or below target, or what is applied. */
static Err find_start(const char *source, int64_t target, int64_t floor, int64_t *start,
                      Fault *fault)
{
    *start = target;
    while (*start > floor) {
        char *dir = delta_version_dir(source, *start);
        if (!fs_is_dir(dir)) {
            Err err = fault_set(fault, ERR_NOT_FOUND, "publish it, or share the directory",
                                "published weight version missing: %s", dir);
            free(dir);
            return err;
        }
        DeltaIndex index;
        Err err = delta_index_read(dir, &index, fault);
        bool delta = index.delta;
        cJSON_Delete(index.json);
        free(dir);
        if (err != ERR_OK || !delta) {
            return err;
        }
        --*start;
    }
    return ERR_OK;
}

static Err pull(const char *source, const char *model_dir, const char *local, int64_t target,
                int64_t *applied, Fault *fault)
{
    int64_t start = 0;
    *applied = state_read(local);
    Err err = find_start(source, target, *applied > 0 ? *applied : 0, &start, fault);
    if (err == ERR_OK && (*applied < 0 || start > *applied)) {
        char *full = start > 0 ? delta_version_dir(source, start) : xstrdup(model_dir);
        err = start > 0 ? prove_complete(full, model_dir, local, fault) : ERR_OK;
        err = err ? err : copy_checkpoint(full, local, fault);
        err = err ? err : state_write(local, start, fault);
        *applied = err ? *applied : start;
        free(full);
    }
    while (err == ERR_OK && *applied < target) {
        char *dir = delta_version_dir(source, *applied + 1);
        DeltaIndex index;
        err = delta_index_read(dir, &index, fault);
        err = err ? err : apply_delta(dir, &index, local, *applied, fault);
        *applied += err == ERR_OK;
        cJSON_Delete(index.json);
        free(dir);
    }
    return err;
}

Err delta_pull(const char *source, const char *model_dir, const char *local, int64_t target,
               int64_t *applied, Fault *fault)
{
    char *sync = fs_join(local, ".weight_sync");
    char *lock = fs_join(sync, "lock");
    int fd = -1;
    *applied = -1;
    Err err = fs_mkdirs(sync, 0755, fault);
    if (err == ERR_OK) {
        fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0 || flock(fd, LOCK_EX) != 0) {
            err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s cannot be locked", lock);
        }
    }
    err = err ? err : pull(source, model_dir, local, target, applied, fault);
    if (fd >= 0) {
        (void)close(fd);
    }
    free(lock);
    free(sync);
    return err;
}
