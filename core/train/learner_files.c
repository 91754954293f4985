/* Checkpoints, states and dumps on disk. A directory appears under its name only when every file
 * in it is whole and synced; a killed trainer leaves at most a directory named *.tmp-PID. */
#include "core/train/learner_private.h"

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/model/digest.h"
#include "core/train/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const kept_files[LEARNER_FILES] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "chat_template.jinja", "generation_config.json"};

static const size_t KEPT_FILE_MAX = (size_t)64 << 20;

Err learner_keep_files(Learner *learner, Fault *fault)
{
    Err err = ERR_OK;
    for (int i = 0; i < LEARNER_FILES && !err; i++) {
        char *path = fs_join(learner->config.load_dir, kept_files[i]);
        text_init(&learner->files[i], KEPT_FILE_MAX);
        if (fs_exists(path)) {
            err = fs_read(path, &learner->files[i], fault);
        }
        free(path);
    }
    return err;
}

void learner_drop_files(Learner *learner)
{
    for (int i = 0; i < LEARNER_FILES; i++) {
        text_free(&learner->files[i]);
    }
}

static Err put_file(const Text *text, const char *dir, const char *name, Fault *fault)
{
    if (!text->p) {
        return ERR_OK; /* the checkpoint has none */
    }
    char *path = fs_join(dir, name);
    Err err = fs_write_atomic(path, text->p, text->n, fault);
    free(path);
    return err;
}

static Err sync_dir(const char *dir, Fault *fault)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int failed = fd < 0 || fsync(fd) != 0;
    int error = errno;
    if (fd >= 0) {
        close(fd);
    }
    return failed ? fault_set_sys(fault, ERR_IO, error, NULL, "cannot sync %s", dir) : ERR_OK;
}

static Err sync_parent(const char *dir, Fault *fault)
{
    char *parent = xstrdup(dir);
    size_t n = strlen(parent);
    while (n > 1 && parent[n - 1] == '/') {
        parent[--n] = '\0';
    }
    char *slash = strrchr(parent, '/');
    if (slash == parent) {
        parent[1] = '\0';
    } else if (slash) {
        *slash = '\0';
    }
    Err err = sync_dir(slash ? parent : ".", fault);
    free(parent);
    return err;
}

/* Parameters and tokenizer files (optimizer too with `state`) into an existing directory. */
static Err learner_write(Learner *learner, ModelDtype dtype, bool state, const char *dir,
                         Fault *fault)
{
    Masters *masters = state ? learner->masters : NULL; /* a policy is what the passes compute */
    masters_show(masters);
    Err err = graph_save(learner->graph, dtype, dir, fault);
    masters_hide(masters);
    for (int i = 0; i < LEARNER_FILES && !err; i++) {
        err = put_file(&learner->files[i], dir, kept_files[i], fault);
    }
    if (!err && state) {
        err = adamw_save(learner->adamw, dir, fault);
    }
    return err ? err : sync_dir(dir, fault);
}

/* What stood under the name is moved aside first: a directory cannot be renamed over another. */
static Err move_in(const char *from, const char *to, Fault *fault)
{
    char *old = xasprintf("%s.old-%ld", to, (long)getpid());
    Err err = fs_remove_tree(old, fault);
    if (!err && fs_exists(to) && rename(to, old) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "cannot move %s aside", to);
    }
    if (!err && rename(from, to) != 0) {
        err = fault_set_sys(fault, ERR_IO, errno, NULL, "cannot rename %s to %s", from, to);
        (void)rename(old, to);
    }
    if (!err) {
        err = sync_parent(to, fault);
    }
    if (!err) {
        err = fs_remove_tree(old, fault);
    }
    free(old);
    return err;
}

static Err write_whole(Learner *learner, ModelDtype dtype, bool state, const char *dir,
                       Fault *fault)
{
    char *temporary = xasprintf("%s.tmp-%ld", dir, (long)getpid());
    Err err = fs_remove_tree(temporary, fault);
    if (!err) {
        err = fs_mkdirs(temporary, 0755, fault);
    }
    if (!err) {
        err = learner_write(learner, dtype, state, temporary, fault);
    }
    if (!err && state) {
        err = seal_write(temporary, fault);
    }
    if (!err) {
        err = move_in(temporary, dir, fault);
    }
    if (err) {
        (void)fs_remove_tree(temporary, NULL);
    }
    free(temporary);
    return err;
}

Err learner_weights_check(Learner *learner, Fault *fault)
{
    for (int i = 0; i < graph_param_count(learner->graph); i++) {
        size_t count = 0;
        const float *p = graph_param(learner->graph, i, &count);
        for (size_t j = 0; j < count; j++) {
            if (!isfinite(p[j])) {
                ModelTensorSpec spec;
                model_tensor_spec(graph_config(learner->graph), i, &spec);
                return fault_set(fault, ERR_NUMERIC, "start the trainer again from the last saved "
                                 "state", "the weights of %s hold %g at element %zu", spec.name,
                                 (double)p[j], j);
            }
        }
    }
    return ERR_OK;
}

static Err fit_to_leave(Learner *learner, Fault *fault)
{
    if (learner->sick) {
        return fault_set(fault, ERR_STATE, "train a step that succeeds, or start the trainer again "
                         "from the last saved state",
                         "the last training step failed on a number; its policy is not published");
    }
    return learner_weights_check(learner, fault);
}

static Err directory_digest(const char *dir, const ModelConfig *config, char digest[DIGEST_TEXT],
                            int64_t *bytes, Fault *fault)
{
    StSet *set = NULL;
    Err err = st_set_open(dir, &set, fault);
    if (!err) {
        err = checkpoint_digest(set, config, digest, fault);
    }
    st_set_close(set);
    char *path = fs_join(dir, "model.safetensors");
    struct stat st;
    *bytes = stat(path, &st) == 0 ? (int64_t)st.st_size : 0;
    free(path);
    return err;
}

Err learner_publish(Learner *learner, ModelDtype dtype, const char *dir, char digest[DIGEST_TEXT],
                    int64_t *bytes, Fault *fault)
{
    Err err = fit_to_leave(learner, fault);
    if (!err) {
        err = write_whole(learner, dtype, false, dir, fault);
    }
    return err ? err : directory_digest(dir, graph_config(learner->graph), digest, bytes, fault);
}

Err learner_save(Learner *learner, const char *dir, Fault *fault)
{
    Err err = fit_to_leave(learner, fault);
    return err ? err : write_whole(learner, MODEL_F32, true, dir, fault);
}

/* ---- dumps ---- */

static Err dump_batch(const LearnerBatch *b, const char *dir, Fault *fault)
{
    int64_t count = (int64_t)b->count;
    int64_t responses = (int64_t)b->responses;
    int32_t *tokens = xcalloc(b->tokens, sizeof *tokens);
    int32_t *counts = xcalloc(2 * b->count, sizeof *counts);
    double *rewards = xcalloc(b->count, sizeof *rewards);
    int64_t *ids = xcalloc(b->count, sizeof *ids);
    float *rollout = xcalloc(b->responses, sizeof *rollout);
    uint8_t *mask = xcalloc(b->responses, 1);
    size_t at = 0;
    for (size_t i = 0; i < b->count; i++) {
        const TrainSample *s = &b->samples[i];
        size_t n = s->prompt_count + s->response_count;
        memcpy(tokens + at, s->tokens, n * sizeof *tokens);
        at += n;
        counts[i] = (int32_t)s->prompt_count;
        counts[b->count + i] = (int32_t)s->response_count;
        rewards[i] = s->reward;
        ids[i] = s->rollout_id;
        for (size_t t = 0; t < s->response_count; t++) {
            rollout[b->at[i] + t] = s->rollout_logp ? s->rollout_logp[t] : NAN;
            mask[b->at[i] + t] = s->mask ? s->mask[t] : 1;
        }
    }
    const StWriteTensor tensors[] = {
        {"tokens", ST_I32, 1, {(int64_t)b->tokens}, tokens},
        {"prompt_counts", ST_I32, 1, {count}, counts},
        {"response_counts", ST_I32, 1, {count}, counts + b->count},
        {"rewards", ST_F64, 1, {count}, rewards},
        {"rollout_ids", ST_I64, 1, {count}, ids},
        {"rollout_log_probs", ST_F32, 1, {responses}, rollout},
        {"loss_masks", ST_U8, 1, {responses}, mask},
        {"log_probs", ST_F32, 1, {responses}, b->logp},
        {"entropy", ST_F32, 1, {responses}, b->entropy},
        {"old_log_probs", ST_F32, 1, {responses}, b->old_logp},
        {"ref_log_probs", ST_F32, 1, {responses}, b->ref_logp},
        {"teacher_log_probs", ST_F32, 1, {responses}, b->teacher_logp},
        {"advantages", ST_F32, 1, {responses}, b->advantage},
        {"dlogp", ST_F32, 1, {responses}, b->dlogp},
    };
    char *path = fs_join(dir, "batch.safetensors");
    Err err = st_write(path, tensors, sizeof tensors / sizeof *tensors, NULL, fault);
    free(path);
    free(tokens);
    free(counts);
    free(rewards);
    free(ids);
    free(rollout);
    free(mask);
    return err;
}

void learner_dump(Learner *learner, int64_t step, const LearnerBatch *batch, const Fault *why,
                  char **dir)
{
    const char *base = learner->config.dump_dir ? learner->config.dump_dir : getenv("TMPDIR");
    *dir = xasprintf("%s/rolltop-numeric-failure-step%lld-%ld", base && *base ? base : "/tmp",
                     (long long)step, (long)getpid());
    Text text;
    text_init(&text, 4096);
    text_addf(&text, "step %lld: %s\n", (long long)step, why->sentence);
    char *path = fs_join(*dir, "fault.txt");
    Err err = fs_mkdirs(*dir, 0700, NULL);
    if (!err) {
        err = fs_write_atomic(path, text.p, text.n, NULL);
    }
    if (!err && batch->pass_logp) { /* else the batch itself was refused before any array existed */
        err = dump_batch(batch, *dir, NULL);
    }
    if (!err) {
        err = learner_write(learner, MODEL_F32, true, *dir, NULL);
    }
    if (err) {
        free(*dir);
        *dir = NULL;
    }
    free(path);
    text_free(&text);
}
