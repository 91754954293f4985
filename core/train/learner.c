/* Training on one graph. A batch is cut into passes of at most max_tokens_per_pass tokens, in the
 * order of its samples; gradients add up over the passes of a step. */
#include "core/train/learner.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/train/learner_private.h"
#include "core/train/seal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

Err learner_new(const TrainerConfig *config, Learner **out, Fault *fault)
{
    *out = NULL;
    Err err = loss_config_check(&config->loss, fault);
    if (!err && (config->threads < 1 || config->threads > 256)) {
        err = fault_set(fault, ERR_ARG, "choose 1 … 256", "the trainer was given %d threads",
                        config->threads);
    }
    if (!err && (config->max_tokens_per_pass < 2 || config->max_tokens_per_pass > 1 << 24)) {
        err = fault_set(fault, ERR_ARG, "choose some thousands",
                        "the trainer was given %d tokens a pass", config->max_tokens_per_pass);
    }
    if (!err && !config->load_dir) {
        err = fault_set(fault, ERR_ARG, "give --hf-checkpoint", "the trainer has no checkpoint");
    }
    if (err) {
        return err;
    }
    bool wants_ref = config->loss.use_kl_loss || config->loss.kl_coef != 0.0;
    if (wants_ref && !config->ref_dir) {
        return fault_set(fault, ERR_ARG, "give --ref-load",
                         "a KL term is on, but there is no reference checkpoint");
    }
    bool wants_teacher = config->loss.opd_kl_coef != 0.0;
    if (wants_teacher && !config->teacher_dir) {
        return fault_set(fault, ERR_ARG, "give --opd-teacher-load",
                         "--use-opd is on, but there is no teacher's checkpoint");
    }
    Learner *learner = xcalloc(1, sizeof *learner);
    learner->config = *config;
    GraphConfig graph = {.threads = config->threads, .max_tokens = config->max_tokens_per_pass};
    err = seal_check(config->load_dir, fault);
    if (!err) {
        err = learner_keep_files(learner, fault);
    }
    if (!err) {
        err = graph_new(config->load_dir, &graph, &learner->graph, fault);
    }
    if (!err && wants_ref) {
        err = graph_new(config->ref_dir, &graph, &learner->reference, fault);
    }
    if (!err && wants_teacher) {
        err = graph_new(config->teacher_dir, &graph, &learner->teacher, fault);
    }
    if (!err) {
        learner->adamw = adamw_new(learner->graph, &config->adam);
        char *moments = fs_join(config->load_dir, "optimizer.safetensors");
        err = fs_exists(moments) ? adamw_load(learner->adamw, config->load_dir, fault) : ERR_OK;
        free(moments);
    }
    if (!err && config->bf16_weights) {
        err = masters_new(learner->graph, &learner->masters, fault);
        masters_hide(learner->masters);
    }
    if (err) {
        learner_free(learner);
        return err;
    }
    *out = learner;
    return ERR_OK;
}

void learner_free(Learner *learner)
{
    if (!learner) {
        return;
    }
    learner_drop_files(learner);
    masters_free(learner->masters);
    adamw_free(learner->adamw);
    graph_free(learner->reference);
    graph_free(learner->teacher);
    graph_free(learner->graph);
    free(learner);
}

Graph *learner_graph(Learner *learner)
{
    return learner->graph;
}

void learner_set_lr(Learner *learner, double lr)
{
    learner->config.adam.lr = lr;
    adamw_set_lr(learner->adamw, lr);
}

void learner_on_progress(Learner *learner, LearnerProgress progress, void *user)
{
    learner->progress = progress;
    learner->progress_user = user;
}

static void tell(const Learner *learner, const char *what, size_t done, size_t of)
{
    if (learner->progress) {
        learner->progress(what, (double)done / (double)(of ? of : 1), learner->progress_user);
    }
}

double learner_metric(const LearnerMetrics *metrics, const char *name, double fallback)
{
    for (int i = 0; i < metrics->count; i++) {
        if (strcmp(metrics->items[i].name, name) == 0) {
            return metrics->items[i].value;
        }
    }
    return fallback;
}

/* Adds to a metric of that name, or makes it. */
static void metric_add(LearnerMetrics *metrics, const char *name, double value)
{
    for (int i = 0; i < metrics->count; i++) {
        if (strcmp(metrics->items[i].name, name) == 0) {
            metrics->items[i].value += value;
            return;
        }
    }
    if (metrics->count < TRAINER_METRICS_MAX) {
        TrainerMetric *item = &metrics->items[metrics->count++];
        snprintf(item->name, sizeof item->name, "%s", name);
        item->value = value;
    }
}

/* ---- batch ---- */

static Err sample_check(const Learner *learner, const TrainSample *s, size_t index, Fault *fault)
{
    int vocab = graph_config(learner->graph)->vocab;
    size_t length = s->prompt_count + s->response_count;
    if (s->prompt_count == 0 || s->response_count == 0) {
        return fault_set(fault, ERR_ARG, "samples need a prompt and a response to be trained",
                         "sample %zu has %zu prompt and %zu response tokens", index,
                         s->prompt_count, s->response_count);
    }
    if (length > (size_t)learner->config.max_tokens_per_pass) {
        return fault_set(fault, ERR_LIMIT, "raise --max-tokens-per-gpu or lower the lengths",
                         "sample %zu has %zu tokens, over the %d of one pass", index, length,
                         learner->config.max_tokens_per_pass);
    }
    if (!isfinite(s->reward)) {
        return fault_set(fault, ERR_NUMERIC, "look at the reward function",
                         "the reward of sample %zu is %g", index, s->reward);
    }
    for (size_t t = 0; t < length; t++) {
        if (s->tokens[t] < 0 || s->tokens[t] >= vocab) {
            return fault_set(fault, ERR_ARG, "train with the checkpoint that the engines serve",
                             "sample %zu has token %d at place %zu, the vocabulary has %d", index,
                             (int)s->tokens[t], t, vocab);
        }
    }
    return ERR_OK;
}

static void batch_free(LearnerBatch *b)
{
    free(b->at);
    free(b->logp);
    free(b->loss);
    free(b->advantages);
    free(b->denominators);
    free(b->packed);
    free(b->pass_logp);
}

static Err batch_new(const Learner *learner, const TrainSample *samples, size_t count,
                     LearnerBatch *b, Fault *fault)
{
    *b = (LearnerBatch){.samples = samples, .count = count};
    b->at = xcalloc(count, sizeof *b->at);
    for (size_t i = 0; i < count; i++) {
        Err err = sample_check(learner, &samples[i], i, fault);
        if (err) {
            return err;
        }
        b->at[i] = b->responses;
        b->responses += samples[i].response_count;
        b->tokens += samples[i].prompt_count + samples[i].response_count;
    }
    size_t room = (size_t)learner->config.max_tokens_per_pass;
    void *memory = NULL;
    if (try_calloc(b->responses, 8 * sizeof(float), SIZE_MAX, &memory)) {
        return fault_set(fault, ERR_MEMORY, "lower --rollout-batch-size",
                         "no memory for a batch of %zu response tokens", b->responses);
    }
    b->logp = memory;
    b->entropy = b->logp + b->responses;
    b->old_logp = b->entropy + b->responses;
    b->ref_logp = b->old_logp + b->responses;
    b->teacher_logp = b->ref_logp + b->responses;
    b->advantage = b->teacher_logp + b->responses;
    b->dlogp = b->advantage + b->responses;
    b->dentropy = b->dlogp + b->responses;
    b->loss = xcalloc(count, sizeof *b->loss);
    b->advantages = xcalloc(3 * count, sizeof *b->advantages);
    b->dlogps = b->advantages + count;
    b->dentropies = b->dlogps + count;
    b->denominators = xcalloc(count, sizeof *b->denominators);
    b->packed = xcalloc(2 * room + 1, sizeof *b->packed);
    b->starts = b->packed + room;
    b->pass_logp = xcalloc(4 * room, sizeof *b->pass_logp);
    b->pass_entropy = b->pass_logp + room;
    b->pass_dlogp = b->pass_entropy + room;
    b->pass_dentropy = b->pass_dlogp + room;
    for (size_t i = 0; i < count; i++) {
        b->advantages[i] = b->advantage + b->at[i];
        b->dlogps[i] = b->dlogp + b->at[i];
        b->dentropies[i] = b->dentropy + b->at[i];
        b->loss[i] = (LossSample){
            .count = samples[i].response_count,
            .logp = b->logp + b->at[i],
            .entropy = b->entropy + b->at[i],
            .rollout_logp = samples[i].rollout_logp,
            .mask = samples[i].mask,
            .rollout_id = samples[i].rollout_id,
            .reward = samples[i].reward,
        };
    }
    return ERR_OK;
}

/* Packs samples from `first` on (below `end`) into one pass. */
static PackedBatch pass_pack(const Learner *learner, LearnerBatch *b, size_t first, size_t end)
{
    int at = 0;
    size_t i = first;
    for (; i < end; i++) {
        int n = (int)(b->samples[i].prompt_count + b->samples[i].response_count);
        if (at + n > learner->config.max_tokens_per_pass) {
            break;
        }
        b->starts[i - first] = at;
        memcpy(b->packed + at, b->samples[i].tokens, (size_t)n * sizeof(int32_t));
        at += n;
    }
    b->starts[i - first] = at;
    b->pass_first = first;
    b->pass_end = i;
    b->pass_tokens = at;
    return (PackedBatch){b->packed, b->starts, (int)(i - first), at};
}

/* Where a sample's response begins in the arrays of its pass. */
static size_t pass_at(const LearnerBatch *b, size_t sample)
{
    return (size_t)b->starts[sample - b->pass_first] + b->samples[sample].prompt_count;
}

static void pass_read(const LearnerBatch *b, const float *from, float *to)
{
    for (size_t i = b->pass_first; i < b->pass_end; i++) {
        memcpy(to + b->at[i], from + pass_at(b, i), b->samples[i].response_count * sizeof(float));
    }
}

static void pass_write(const LearnerBatch *b, const float *from, float *to)
{
    memset(to, 0, (size_t)b->pass_tokens * sizeof(float));
    for (size_t i = b->pass_first; i < b->pass_end; i++) {
        memcpy(to + pass_at(b, i), from + b->at[i], b->samples[i].response_count * sizeof(float));
    }
}

/* Log-probs of all responses under `graph` into out. */
static Err batch_score(const Learner *learner, Graph *graph, LearnerBatch *b, const char *what,
                       float *out, Fault *fault)
{
    float temperature = (float)learner->config.loss.rollout_temperature;
    for (size_t first = 0; first < b->count; first = b->pass_end) {
        tell(learner, what, first, b->count);
        PackedBatch packed = pass_pack(learner, b, first, b->count);
        Err err = graph_forward(graph, &packed, temperature, false, b->pass_logp, NULL, fault);
        if (err) {
            return err;
        }
        pass_read(b, b->pass_logp, out);
    }
    return ERR_OK;
}

/* ---- one optimizer step over samples [first, end) ---- */

static Err step_pass(Learner *learner, LearnerBatch *b, size_t first, size_t end, double scale,
                     LossMetrics *sum, Fault *fault)
{
    const LossConfig *loss = &learner->config.loss;
    PackedBatch packed = pass_pack(learner, b, first, end);
    Err err = graph_forward(learner->graph, &packed, (float)loss->rollout_temperature, true,
                            b->pass_logp, b->pass_entropy, fault);
    if (err) {
        return err;
    }
    pass_read(b, b->pass_logp, b->logp);
    pass_read(b, b->pass_entropy, b->entropy);
    bool entropy = loss->loss_type == LOSS_POLICY && loss->entropy_coef != 0.0;
    LossMetrics part;
    err = loss_gradients_part(loss, b->loss + first, b->pass_end - first, b->denominators + first,
                              scale, (const float *const *)(b->advantages + first),
                              b->dlogps + first, entropy ? b->dentropies + first : NULL, &part,
                              fault);
    if (err) {
        return err;
    }
    loss_metrics_add(sum, &part);
    pass_write(b, b->dlogp, b->pass_dlogp);
    if (entropy) {
        pass_write(b, b->dentropy, b->pass_dentropy);
    }
    return graph_backward(learner->graph, b->pass_dlogp, entropy ? b->pass_dentropy : NULL, fault);
}

static void step_metrics(const LossConfig *config, const LossMetrics *m, double grad_norm,
                         LearnerMetrics *out)
{
    metric_add(out, "train/loss", m->loss);
    metric_add(out, "train/grad_norm", grad_norm);
    if (config->loss_type == LOSS_SFT) {
        return;
    }
    metric_add(out, "train/pg_loss", m->pg_loss);
    metric_add(out, "train/entropy_loss", m->entropy_loss);
    metric_add(out, "train/pg_clipfrac", m->pg_clipfrac);
    metric_add(out, "train/ppo_kl", m->ppo_kl);
    if (m->has_rollout) {
        metric_add(out, "train/train_rollout_logprob_abs_diff", m->train_rollout_logprob_abs_diff);
    }
    if (m->has_kl) {
        metric_add(out, "train/kl_loss", m->kl_loss);
    }
    if (m->has_tis) {
        metric_add(out, "train/ois", m->ois);
        metric_add(out, "train/tis", m->tis);
        metric_add(out, "train/tis_clipfrac", m->tis_clipfrac);
        metric_add(out, "train/tis_abs", m->tis_abs);
    }
    if (m->has_opsm) {
        metric_add(out, "train/opsm_clipfrac", m->opsm_clipfrac);
    }
}

static Err step_run(Learner *learner, LearnerBatch *b, size_t first, size_t end,
                    LearnerMetrics *metrics, Fault *fault)
{
    double scale = 1.0;
    loss_scale(&learner->config.loss, b->loss + first, end - first, b->denominators + first,
               &scale);
    graph_zero_grad(learner->graph);
    LossMetrics sum = {0};
    for (size_t at = first; at < end; at = b->pass_end) {
        tell(learner, "train", at, b->count);
        Err err = step_pass(learner, b, at, end, scale, &sum, fault);
        if (err) {
            return err;
        }
    }
    double grad_norm = 0.0;
    masters_show(learner->masters);
    Err err = adamw_step(learner->adamw, &grad_norm, fault);
    masters_hide(learner->masters);
    if (!err) {
        step_metrics(&learner->config.loss, &sum, grad_norm, metrics);
    }
    return err;
}

/* End of the step that begins at sample `first`: global_batch_size executions further. Siblings
 * of one execution stand together. The last step takes what is left. */
static size_t step_end(const LearnerBatch *b, size_t first, int64_t executions)
{
    if (executions <= 0) {
        return b->count;
    }
    int64_t seen = 0;
    size_t i = first;
    for (; i < b->count; i++) {
        bool is_new = i == first || b->samples[i].rollout_id != b->samples[i - 1].rollout_id;
        if (is_new && ++seen > executions) {
            break;
        }
    }
    return i;
}

/* ---- requests ---- */

static Err batch_prepare(Learner *learner, LearnerBatch *b, bool one_step, Fault *fault)
{
    const LossConfig *loss = &learner->config.loss;
    if (loss->loss_type == LOSS_SFT) {
        return ERR_OK;
    }
    /* Engine log-probs as the old policy need no pass; nor does a single step, whose own forward
     * gives them (ratio 1). */
    bool reuse = loss->use_rollout_logprobs ||
                 (one_step && loss->kl_coef == 0.0 && !learner->teacher);
    Err err = ERR_OK;
    if (!reuse) {
        err = batch_score(learner, learner->graph, b, "log_probs", b->old_logp, fault);
    }
    if (!err && learner->reference) {
        err = batch_score(learner, learner->reference, b, "ref_log_probs", b->ref_logp, fault);
    }
    if (!err && learner->teacher) {
        err = batch_score(learner, learner->teacher, b, "teacher_log_probs", b->teacher_logp,
                          fault);
    }
    for (size_t i = 0; i < b->count; i++) {
        b->loss[i].old_logp = reuse ? NULL : b->old_logp + b->at[i];
        b->loss[i].teacher_logp = learner->teacher ? b->teacher_logp + b->at[i] : NULL;
        b->loss[i].ref_logp = learner->reference ? b->ref_logp + b->at[i] : NULL;
    }
    if (err) {
        return err;
    }
    double *rewards = xcalloc(2 * b->count, sizeof *rewards);
    for (size_t i = 0; i < b->count; i++) {
        rewards[i] = b->samples[i].reward;
    }
    loss_normalise_rewards(loss, rewards, b->count, rewards + b->count);
    err = loss_advantages(loss, b->loss, b->count, rewards + b->count, b->advantages, fault);
    free(rewards);
    return err;
}

static void means(LearnerMetrics *metrics, int steps)
{
    for (int i = 0; i < metrics->count; i++) {
        metrics->items[i].value /= steps;
    }
}

static Err batch_train(Learner *learner, LearnerBatch *b, LearnerMetrics *metrics, Fault *fault)
{
    int64_t begin = clock_mono_us();
    bool one_step = step_end(b, 0, learner->config.global_batch_size) == b->count;
    Err err = batch_prepare(learner, b, one_step, fault);
    int64_t prepared = clock_mono_us();
    int steps = 0;
    for (size_t first = 0; first < b->count && !err; steps++) {
        size_t end = step_end(b, first, learner->config.global_batch_size);
        err = step_run(learner, b, first, end, metrics, fault);
        first = end;
    }
    if (err) {
        return err;
    }
    means(metrics, steps);
    double seconds = (double)(clock_mono_us() - begin) / 1e6;
    metric_add(metrics, "train/lr-pg_0", learner->config.adam.lr);
    metric_add(metrics, "train/steps", steps);
    metric_add(metrics, "train/tokens", (double)b->tokens);
    metric_add(metrics, "perf/log_probs_time", (double)(prepared - begin) / 1e6);
    metric_add(metrics, "perf/train_time", seconds);
    metric_add(metrics, "perf/actor_train_tok_per_s", (double)b->tokens / fmax(seconds, 1e-9));
    return ERR_OK;
}

Err learner_train(Learner *learner, int64_t step, const TrainSample *samples, size_t count,
                  LearnerMetrics *metrics, Fault *fault)
{
    *metrics = (LearnerMetrics){0};
    Fault local = {0};
    if (!fault) {
        fault = &local;
    }
    LearnerBatch b;
    Err err = batch_new(learner, samples, count, &b, fault);
    if (!err) {
        err = batch_train(learner, &b, metrics, fault);
    }
    if (!err) {
        learner->sick = false;
    } else if (err == ERR_NUMERIC) {
        learner->sick = true;
        Fault weights = {0}; /* bad weights show in the loss first: name the cause */
        if (learner_weights_check(learner, &weights)) {
            *fault = weights;
        }
        char *dir = NULL;
        learner_dump(learner, step, &b, fault, &dir);
        size_t used = strlen(fault->hint);
        snprintf(fault->hint + used, sizeof fault->hint - used, "%s%s%s", used ? "; " : "",
                 dir ? "batch and state are in " : "batch and state could not be kept",
                 dir ? dir : "");
        free(dir);
    }
    batch_free(&b);
    return err;
}

Err learner_sft(Learner *learner, const int32_t *const *tokens, const uint8_t *const *masks,
                const size_t *counts, size_t count, LearnerMetrics *metrics, Fault *fault)
{
    TrainSample *samples = xcalloc(count, sizeof *samples);
    Err err = ERR_OK;
    for (size_t i = 0; i < count && !err; i++) {
        if (counts[i] < 2) {
            err = fault_set(fault, ERR_ARG, "give at least two tokens",
                            "example %zu has %zu tokens", i, counts[i]);
        }
        samples[i] = (TrainSample){.tokens = tokens[i], .prompt_count = 1,
                                   .response_count = counts[i] - 1, .mask = masks[i] + 1,
                                   .rollout_id = (int64_t)i};
    }
    if (!err) {
        LossConfig keep = learner->config.loss;
        int64_t batch = learner->config.global_batch_size;
        learner->config.loss = loss_config_default();
        learner->config.loss.loss_type = LOSS_SFT;
        learner->config.global_batch_size = 0;
        err = learner_train(learner, -1, samples, count, metrics, fault);
        learner->config.loss = keep;
        learner->config.global_batch_size = batch;
    }
    free(samples);
    return err;
}

static Err score_check(const Learner *learner, const int32_t *tokens, size_t count, size_t index,
                       Fault *fault)
{
    int vocab = graph_config(learner->graph)->vocab;
    size_t room = (size_t)learner->config.max_tokens_per_pass;
    if (count == 0 || count > room) {
        return fault_set(fault, ERR_LIMIT, "raise --max-tokens-per-gpu",
                         "sequence %zu has %zu tokens, one pass takes 1 … %zu", index, count,
                         room);
    }
    for (size_t t = 0; t < count; t++) {
        if (tokens[t] < 0 || tokens[t] >= vocab) {
            return fault_set(fault, ERR_ARG, NULL, "sequence %zu has token %d, the vocabulary has "
                             "%d", index, (int)tokens[t], vocab);
        }
    }
    return ERR_OK;
}

/* Packs sequences from `first` on into one pass; returns the first that has no room. */
static size_t score_pack(const Learner *learner, const int32_t *const *tokens,
                         const size_t *counts, size_t first, size_t end, int32_t *packed,
                         int32_t *starts)
{
    size_t room = (size_t)learner->config.max_tokens_per_pass;
    size_t at = 0;
    size_t i = first;
    for (; i < end && at + counts[i] <= room; i++) {
        starts[i - first] = (int32_t)at;
        memcpy(packed + at, tokens[i], counts[i] * sizeof *packed);
        at += counts[i];
    }
    starts[i - first] = (int32_t)at;
    return i;
}

Err learner_score(Learner *learner, const int32_t *const *tokens, const size_t *counts,
                  size_t count, float temperature, float *out, Fault *fault)
{
    size_t room = (size_t)learner->config.max_tokens_per_pass;
    float *logp = xcalloc(room, sizeof *logp);
    int32_t *packed = xcalloc(room, sizeof *packed);
    int32_t *starts = xcalloc(room + 1, sizeof *starts);
    Err err = ERR_OK;
    for (size_t i = 0; i < count && !err; i++) {
        err = score_check(learner, tokens[i], counts[i], i, fault);
    }
    for (size_t first = 0; first < count && !err;) {
        size_t end = score_pack(learner, tokens, counts, first, count, packed, starts);
        PackedBatch batch = {packed, starts, (int)(end - first), starts[end - first]};
        err = graph_forward(learner->graph, &batch, temperature, false, logp, NULL, fault);
        for (size_t i = first; i < end && !err; i++) {
            memcpy(out, logp + starts[i - first] + 1, (counts[i] - 1) * sizeof *out);
            out += counts[i] - 1;
        }
        first = end;
    }
    free(starts);
    free(packed);
    free(logp);
    return err;
}
