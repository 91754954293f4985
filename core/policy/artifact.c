#include "core/policy/artifact.h"

#include "core/base/mem.h"
#include "core/model/checkpoint.h"
#include "core/model/digest.h"
#include "core/model/kernels.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    CHUNK_BYTES = 256 << 10, /* read, then looked at: stays in a core's own cache */
    THREAD_BYTES = 4 << 20
};
static const double NORM_JUMP_DEFAULT = 4.0;
static const double RMS_TINY = 1e-6; /* below it a tensor is as good as zero and may grow freely */

typedef struct Check {
    const char *dir;
    const ModelConfig *config;
    const StSet *set;
    const Kernels *kernels;
    void *chunk; /* CHUNK_BYTES */
    double *norms;
    Err err;
    Fault fault;
} Check;

static Err not_finite(Check *check, const StTensor *tensor, size_t from, size_t n)
{
    float value = NAN;
    size_t at = from;
    while (at < from + n && st_read_f32(tensor, at, 1, &value) == ERR_OK && isfinite(value)) {
        at++;
    }
    return fault_set(&check->fault, ERR_NUMERIC,
                     "keep the trainer's state and look at the step that made it",
                     "%s: tensor %s holds %s at element %zu", check->dir, tensor->name,
                     isnan(value) ? "NaN" : "infinity", at);
}

/* Elements `from` … from + n - 1; BF16 is summed as it lies in the file. */
static Err part_sum(const Check *check, const StTensor *tensor, size_t from, size_t n, double *sum)
{
    if (tensor->dtype == ST_BF16) {
        Err err = st_read_bytes(tensor, 2 * from, 2 * n, check->chunk);
        *sum = err == ERR_OK ? check->kernels->square_sum_bf16(check->chunk, n) : 0.0;
        return err;
    }
    Err err = st_read_f32(tensor, from, n, check->chunk);
    *sum = err == ERR_OK ? check->kernels->square_sum(check->chunk, n) : 0.0;
    return err;
}

static Err check_tensor(Check *check, const StTensor *tensor, double *norm)
{
    const size_t most = CHUNK_BYTES / (tensor->dtype == ST_BF16 ? 2 : sizeof(float));
    size_t count = tensor->bytes / st_dtype_size(tensor->dtype);
    double sum = 0.0;
    for (size_t from = 0; from < count; from += most) {
        size_t n = count - from < most ? count - from : most;
        double part = 0.0;
        Err err = part_sum(check, tensor, from, n, &part);
        if (err != ERR_OK) {
            return fault_set(&check->fault, err, NULL, "%s: tensor %s cannot be read", check->dir,
                             tensor->name);
        }
        if (!isfinite(part)) {
            return not_finite(check, tensor, from, n);
        }
        sum += part;
    }
    *norm = sqrt(sum);
    return ERR_OK;
}

static void *check_norms(void *user)
{
    Check *check = user;
    int count = model_tensor_count(check->config);
    for (int i = 0; i < count && check->err == ERR_OK; i++) {
        const StTensor *tensor = checkpoint_tensor(check->set, check->config, i);
        check->err = check_tensor(check, tensor, &check->norms[i]);
    }
    return NULL;
}

static Err jump_fault(const char *dir, const char *name, double before, double now, double limit,
                      Fault *fault)
{
    return fault_set(fault, ERR_NUMERIC,
                     "look at the step's gradient norm and learning rate before publishing",
                     "%s: the norm of tensor %s went from %.6g to %.6g, more than %.3g times", dir,
                     name, before, now, limit);
}

static Err check_jumps(const char *dir, const ModelConfig *config, const double *norms,
                       const Artifact *previous, double limit, Fault *fault)
{
    int count = model_tensor_count(config);
    if (previous->tensors != count) {
        return fault_set(fault, ERR_FORMAT, "publish a checkpoint of the model that is served",
                         "%s holds %d tensors, the policy before it %d", dir, count,
                         previous->tensors);
    }
    for (int i = 0; i < count; i++) {
        ModelTensorSpec spec;
        ModelTensorSpec old;
        model_tensor_spec(config, i, &spec);
        model_tensor_spec(&previous->config, i, &old);
        double elements = 1.0;
        bool same = spec.rank == old.rank && strcmp(spec.name, old.name) == 0;
        for (int d = 0; d < spec.rank && same; d++) {
            same = spec.shape[d] == old.shape[d];
            elements *= (double)spec.shape[d];
        }
        if (!same) {
            return fault_set(fault, ERR_FORMAT, "publish a checkpoint of the model that is served",
                             "%s: tensor %s has another shape than in the policy before it", dir,
                             spec.name);
        }
        double before = previous->norms[i];
        if (before > RMS_TINY * sqrt(elements) &&
            (norms[i] > before * limit || norms[i] * limit < before)) {
            return jump_fault(dir, spec.name, before, norms[i], limit, fault);
        }
    }
    return ERR_OK;
}

/* Digest on this thread, norms on another one when there is much to read. */
static Err read_all(Check *check, int64_t bytes, char digest[DIGEST_TEXT], Fault *fault)
{
    pthread_t thread;
    bool threaded = bytes >= THREAD_BYTES && pthread_create(&thread, NULL, check_norms, check) == 0;
    if (!threaded) {
        (void)check_norms(check);
    }
    Err err = checkpoint_digest(check->set, check->config, digest, fault);
    if (threaded) {
        (void)pthread_join(thread, NULL);
    }
    if (check->err != ERR_OK) {
        return fault_set(fault, check->err, check->fault.hint, "%s", check->fault.sentence);
    }
    return err;
}

/* Names, sizes, times and inodes of the directory's files: equal before and after reading, or
 * somebody wrote meanwhile. */
static uint64_t dir_stamp(const char *path)
{
    uint64_t stamp = 0;
    DIR *dir = opendir(path);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        struct stat info;
        if (fstatat(dirfd(dir), entry->d_name, &info, 0) != 0 || !S_ISREG(info.st_mode)) {
            continue;
        }
        int64_t facts[] = {(int64_t)info.st_size, (int64_t)info.st_mtim.tv_sec,
                           (int64_t)info.st_mtim.tv_nsec, (int64_t)info.st_ino};
        stamp += hash64(facts, sizeof facts, hash64(entry->d_name, strlen(entry->d_name), 0));
    }
    if (dir) {
        closedir(dir);
    }
    return stamp;
}

static Err still_written(const char *dir, Fault *fault)
{
    return fault_set(fault, ERR_STATE, "publish into another directory and rename it when done",
                     "%s is being written: its files changed while they were read", dir);
}

Err artifact_check(const char *dir, const Artifact *previous, double norm_jump, Artifact *out,
                   Fault *fault)
{
    StSet *set = NULL;
    double limit = norm_jump > 0.0 ? norm_jump : NORM_JUMP_DEFAULT;
    uint64_t stamp = dir_stamp(dir);
    *out = (Artifact){0};
    Err err = model_config_load(dir, &out->config, fault);
    if (err == ERR_OK) {
        err = checkpoint_open(dir, &out->config, &set, fault);
    }
    if (err != ERR_OK) {
        return err;
    }
    out->tensors = model_tensor_count(&out->config);
    out->norms = xcalloc((size_t)out->tensors, sizeof *out->norms);
    for (int i = 0; i < out->tensors; i++) {
        out->bytes += (int64_t)checkpoint_tensor(set, &out->config, i)->bytes;
    }
    Check check = {.dir = dir, .config = &out->config, .set = set, .norms = out->norms,
                   .kernels = kernels_best(), .chunk = xcalloc(1, CHUNK_BYTES)};
    err = read_all(&check, out->bytes, out->digest, fault);
    free(check.chunk);
    if (err == ERR_OK && previous != NULL) {
        err = check_jumps(dir, &out->config, out->norms, previous, limit, fault);
    }
    st_set_close(set);
    if (err == ERR_OK && dir_stamp(dir) != stamp) {
        err = still_written(dir, fault);
    }
    if (err != ERR_OK) {
        artifact_free(out);
    }
    return err;
}

void artifact_free(Artifact *artifact)
{
    free(artifact->norms);
    *artifact = (Artifact){0};
}
