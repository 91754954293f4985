/* Writes one delta version: one file and the index, in a directory that appears whole. */
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/model/safetensors.h"
#include "core/policy/delta.h"
#include "core/policy/delta_each.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DELTA_FILE "model-00000-of-00001.safetensors"

typedef struct Changes { /* frames and sums of the changed tensors, in order */
    StWriteTensor *tensors;
    const char **metadata; /* name, sum, …, NULL */
    size_t count;
} Changes;

static void changes_free(Changes *changes)
{
    for (size_t i = 0; i < changes->count; i++) {
        free((void *)(uintptr_t)changes->tensors[i].data);
        free((void *)(uintptr_t)changes->metadata[2 * i + 1]);
    }
    free(changes->tensors);
    free(changes->metadata);
}

static bool same_kind(const StTensor *a, const StTensor *b)
{
    bool same = b && a->dtype == b->dtype && a->rank == b->rank && a->bytes == b->bytes;
    for (int d = 0; same && d < a->rank; d++) {
        same = a->shape[d] == b->shape[d];
    }
    return same;
}

typedef struct Encoding { /* what the threads work on; each fills its own frames */
    const StSet *before, *after;
    DeltaEncoding encoding;
    DeltaSum sum;
    DeltaFrame *frames; /* in the order of `after` */
} Encoding;

static Err encode_tensor(void *context, DeltaScratch *scratch, size_t at, Fault *fault)
{
    const Encoding *job = context;
    const StTensor *now = st_set_at(job->after, at);
    const StTensor *old = st_set_find(job->before, now->name);
    void *before = malloc(now->bytes + 1);
    void *after = malloc(now->bytes + 1);
    Err err = ERR_OK;
    if (!before || !after) {
        err = fault_set(fault, ERR_MEMORY, NULL, "no memory for tensor %s, %zu bytes", now->name,
                        now->bytes);
    } else if (st_read_bytes(old, 0, old->bytes, before) != ERR_OK ||
               st_read_bytes(now, 0, now->bytes, after) != ERR_OK) {
        err = fault_set(fault, ERR_IO, NULL, "tensor %s cannot be read", now->name);
    } else {
        err = delta_encode(scratch, job->encoding, before, after, now->bytes, job->sum,
                           &job->frames[at], fault);
    }
    free(before);
    free(after);
    return err;
}

static Err check_kinds(const StSet *before, const StSet *after, size_t *sizes, Fault *fault)
{
    for (size_t i = 0; i < st_set_count(after); i++) {
        const StTensor *now = st_set_at(after, i);
        if (!same_kind(now, st_set_find(before, now->name))) {
            return fault_set(fault, ERR_FORMAT, "publish this version in full",
                             "tensor %s is missing in the base, or has another shape or type",
                             now->name);
        }
        sizes[i] = now->bytes;
    }
    return ERR_OK;
}

/* Takes the frame over where there is one. */
static void add_change(const StTensor *now, const DeltaFrame *frame, Changes *changes,
                       DeltaStats *stats)
{
    stats->tensors++;
    stats->bytes += now->bytes;
    stats->changed_bytes += frame->changed;
    if (frame->bytes) {
        size_t at = changes->count++;
        changes->tensors[at] = (StWriteTensor){.name = now->name, .dtype = ST_U8, .rank = 1,
                                               .shape = {(int64_t)frame->n},
                                               .data = frame->bytes};
        changes->metadata[2 * at] = now->name;
        changes->metadata[2 * at + 1] = xstrdup(frame->sum);
        stats->changed_tensors++;
        stats->wire_bytes += frame->n;
    }
}

static Err collect(const StSet *before, const StSet *after, DeltaEncoding encoding, DeltaSum sum,
                   Changes *changes, DeltaStats *stats, Fault *fault)
{
    const size_t count = st_set_count(after);
    size_t *sizes = xcalloc(count + 1, sizeof *sizes);
    Encoding job = {before, after, encoding, sum, xcalloc(count + 1, sizeof *job.frames)};
    Err err = check_kinds(before, after, sizes, fault);
    err = err ? err : delta_each(sizes, count, encode_tensor, &job, fault);
    for (size_t i = 0; i < count; i++) {
        add_change(st_set_at(after, i), &job.frames[i], changes, stats);
    }
    free(job.frames);
    free(sizes);
    return err;
}

static void version_text(int64_t version, char out[24])
{
    (void)str_format(out, 24, "%06lld", (long long)version);
}

static Err write_index(const char *dir, const Changes *changes, const DeltaStats *stats,
                       DeltaEncoding encoding, DeltaSum sum, const DeltaProof *proof,
                       Fault *fault)
{
    Text text;
    text_init(&text, 64 << 20);
    JsonOut out;
    char number[24];
    json_begin(&out, &text);
    json_object_begin(&out);
    json_key(&out, "metadata");
    json_object_begin(&out);
    version_text(stats->version, number);
    json_member_string(&out, "version", number);
    version_text(stats->base, number);
    json_member_string(&out, "base_version", number);
    json_member_string(&out, "delta_encoding", delta_encoding_name(encoding));
    json_member_string(&out, "compression_format", "zstd");
    json_member_string(&out, "checksum_format",
                       sum == DELTA_SUM_ADLER32 ? "adler32" : "xxh3-128");
    if (proof && proof->base_digest) {
        json_member_string(&out, "base_digest", proof->base_digest);
    }
    if (proof && proof->digest) {
        json_member_string(&out, "digest", proof->digest);
    }
    json_object_end(&out);
    json_key(&out, "weight_map");
    json_object_begin(&out);
    for (size_t i = 0; i < changes->count; i++) {
        json_member_string(&out, changes->tensors[i].name, DELTA_FILE);
    }
    json_object_end(&out);
    json_object_end(&out);
    char *path = fs_join(dir, "model.safetensors.index.json");
    Err err = text.cut ? fault_set(fault, ERR_LIMIT, NULL, "the index of %s is too long", dir)
                       : fs_write_atomic(path, text.p, text.n, fault);
    free(path);
    text_free(&text);
    return err;
}

static Err write_version(const char *parent, const Changes *changes, DeltaStats *stats,
                         DeltaEncoding encoding, DeltaSum sum, const DeltaProof *proof,
                         Fault *fault)
{
    char *dir = xasprintf("%s/weight_v%06lld", parent, (long long)stats->version);
    char *partial = xasprintf("%s/.weight_v%06lld.partial", parent, (long long)stats->version);
    Err err = fs_remove_tree(partial, fault);
    err = err ? err : fs_mkdirs(partial, 0755, fault);
    if (err == ERR_OK && changes->count > 0) {
        char *file = fs_join(partial, DELTA_FILE);
        err = st_write(file, changes->tensors, changes->count, changes->metadata, fault);
        free(file);
    }
    err = err ? err : write_index(partial, changes, stats, encoding, sum, proof, fault);
    err = err ? err : fs_remove_tree(dir, fault);
    if (err == ERR_OK && rename(partial, dir) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s cannot be put in place", dir);
    }
    if (err != ERR_OK) {
        (void)fs_remove_tree(partial, NULL);
    }
    free(partial);
    free(dir);
    return err;
}

Err delta_publish(const char *old_dir, const char *new_dir, const char *parent, int64_t version,
                  int64_t base, DeltaEncoding encoding, DeltaSum sum, const DeltaProof *proof,
                  DeltaStats *stats, Fault *fault)
{
    StSet *before = NULL;
    StSet *after = NULL;
    Changes changes = {0};
    *stats = (DeltaStats){.version = version, .base = base};
    Err err = st_set_open(old_dir, &before, fault);
    err = err ? err : st_set_open(new_dir, &after, fault);
    if (err == ERR_OK && st_set_count(before) != st_set_count(after)) {
        err = fault_set(fault, ERR_FORMAT, "publish this version in full",
                        "%s holds %zu tensors, %s %zu", new_dir, st_set_count(after), old_dir,
                        st_set_count(before));
    }
    if (err == ERR_OK) {
        size_t count = st_set_count(after);
        changes.tensors = xcalloc(count + 1, sizeof *changes.tensors);
        changes.metadata = xcalloc(2 * count + 1, sizeof *changes.metadata);
        err = collect(before, after, encoding, sum, &changes, stats, fault);
    }
    err = err ? err : write_version(parent, &changes, stats, encoding, sum, proof, fault);
    changes_free(&changes);
    st_set_close(before);
    st_set_close(after);
    return err;
}

Err delta_publish_full(const char *parent, int64_t version, const char *name, Fault *fault)
{
    char *path = xasprintf("%s/weight_v%06lld", parent, (long long)version);
    char *to = xasprintf("../%s", name);
    Err err = fs_mkdirs(parent, 0755, fault);
    err = err ? err : fs_remove_tree(path, fault);
    if (err == ERR_OK && symlink(to, path) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "%s cannot be made", path);
    }
    free(to);
    free(path);
    return err;
}
