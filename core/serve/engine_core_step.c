/* One step: plan, compute, sample, end. Per token this does no allocation, no formatting and no
 * lock; what a reply needs is gathered in the request. */
#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/serve/engine_core_local.h"
#include "core/serve/synthetic.h"

#include <math.h>
#include <string.h>

static void mark_dirty(Core *core, EngineRequest *request)
{
    if (request->in_dirty || !request->stream) {
        return;
    }
    if (core->dirty_count == core->dirty_capacity) {
        core->dirty_capacity = core->dirty_capacity * 2 + 16;
        core->dirty = xrealloc(core->dirty, (size_t)core->dirty_capacity, sizeof *core->dirty);
    }
    core->dirty[core->dirty_count++] = request;
    request->in_dirty = true;
}

static bool is_stop_id(const EngineRequest *request, int32_t id)
{
    for (size_t i = 0; i < request->stop_id_count; i++) {
        if (request->stop_ids[i] == id) {
            return true;
        }
    }
    return false;
}

static bool hits_stop_text(EngineRequest *request, int32_t id)
{
    if (request->stop_count == 0) {
        return false;
    }
    size_t before = request->decoded.n;
    engine_text_push(&request->decoder, id, &request->decoded);
    size_t at = 0;
    return engine_text_find_stop(text_str(&request->decoded), before, request->stops,
                                 request->stop_count, &request->matched_text, &at);
}

static void note_span(Core *core, EngineRequest *request, int output)
{
    VersionSpan *last = request->span_count ? &request->spans[request->span_count - 1] : NULL;
    if (last && last->version == core->version) {
        last->to = output + 1;
        return;
    }
    request->spans = xrealloc(request->spans, (size_t)request->span_count + 1,
                              sizeof *request->spans);
    request->spans[request->span_count++] = (VersionSpan){core->version, output, output + 1};
}

/* One more output: appends, tells streams, checks the ends. */
static void core_append(Core *core, EngineRequest *request, int32_t id, float logprob,
                        const TokenAlt *alts, int64_t now_us)
{
    request_reserve(request);
    int output = request_output_count(request);
    request->tokens[request->seq.count++] = id;
    request->logprobs[output] = request->fault_nan ? NAN : logprob;
    for (int i = 0; i < request->top_count; i++) {
        request->alts[output * request->top_count + i] = alts[i];
    }
    if (output == 0) {
        request->first_token_us = now_us;
    }
    request->outputs = output + 1;
    note_span(core, request, output);
    core->stats.decode_tokens++;
    core->window_tokens++;
    if (request->uses_counts) {
        penalty_add(&request->counts, id);
    }
    int limit = request->fault_length > 0 && request->fault_length < request->max_new
                    ? request->fault_length : request->max_new;
    if (output + 1 >= limit) {
        core_finish(core, request, REQUEST_LENGTH, now_us);
    } else if (!request->fault_nostop && is_stop_id(request, id)) {
        request->matched_id = id;
        core_finish(core, request, REQUEST_STOP_ID, now_us);
    } else if (hits_stop_text(request, id) && !request->fault_nostop) {
        core_finish(core, request, REQUEST_STOP_TEXT, now_us);
    } else {
        mark_dirty(core, request);
    }
}

/* The k best of one row as log-softmax(logits / temperature), best first. O(vocab + k * hits). */
static void best_of(const float *logits, int vocab, float temperature, int k, TokenAlt *out)
{
    float scale = temperature < 1e-6f ? 1.0f : 1.0f / temperature;
    float top = -INFINITY;
    for (int i = 0; i < vocab; i++) {
        top = logits[i] > top ? logits[i] : top;
    }
    double sum = 0.0;
    int have = 0;
    for (int i = 0; i < vocab; i++) {
        float v = logits[i];
        sum += (double)expf((v - top) * scale);
        if (have == k && !(v > out[k - 1].logprob)) {
            continue;
        }
        int at = have < k ? have++ : k - 1;
        while (at > 0 && out[at - 1].logprob < v) {
            out[at] = out[at - 1];
            at--;
        }
        out[at] = (TokenAlt){i, v};
    }
    float log_sum = (float)log(sum);
    for (int i = 0; i < have; i++) {
        out[i].logprob = (out[i].logprob - top) * scale - log_sum;
    }
    for (int i = have; i < k; i++) {
        out[i] = (TokenAlt){0, -INFINITY};
    }
}

static void input_reserve(EngineRequest *request)
{
    if (request->input_logprobs) {
        return;
    }
    size_t n = (size_t)(request->seq.prompt - request->logprob_start);
    request->input_logprobs = xcalloc(n, sizeof *request->input_logprobs);
    if (request->top_count > 0) {
        request->input_alts = xcalloc(n * (size_t)request->top_count,
                                      sizeof *request->input_alts);
    }
}

/* Position whose logits give the next input log-prob that is missing; -1: none is. */
static int next_input_position(const EngineRequest *request)
{
    if (request->logprob_start < 0) {
        return -1;
    }
    int position = request->logprob_start + request->input_logprob_count;
    return position + 1 < request->seq.prompt ? position : -1;
}

static void take_input_row(Core *core, EngineRequest *request, const float *row, int position)
{
    input_reserve(request);
    int at = request->input_logprob_count++;
    request->input_logprobs[at] = sampler_logprob(row, core->config.vocab, 1.0f,
                                                  request->tokens[position + 1]);
    if (request->top_count > 0) {
        best_of(row, core->config.vocab, 1.0f, request->top_count,
                request->input_alts + (size_t)at * (size_t)request->top_count);
    }
}

static void sample_row(Core *core, EngineRequest *request, const float *row, int64_t now_us)
{
    SampledToken token = {0};
    int outputs = request_output_count(request);
    Err err = sampler_draw(core->sampler, row, &request->params,
                           request->uses_counts ? &request->counts : NULL, outputs, &request->rng,
                           &token);
    if (err) {
        (void)str_format(request->error, sizeof request->error,
                         "the model gave no finite logit for output token %d", outputs);
        core_finish(core, request, REQUEST_FAILED, now_us);
        return;
    }
    if (request->fault_empty && core->config.eos_count > 0) {
        token.id = core->config.eos[0];
    } else if (request->fault_garble || core->garbled) {
        token.id = (int32_t)rng_below(&request->rng, (uint64_t)core->config.vocab);
    }
    if (request->top_count > 0) {
        best_of(row, core->config.vocab, request->params.temperature, request->top_count,
                core->alts);
    }
    core_append(core, request, token.id, token.logprob, core->alts, now_us);
}

/* ---- the synthetic rule --------------------------------------------------------------------- */

static void synthetic_input(Core *core, EngineRequest *request)
{
    if (next_input_position(request) < 0) {
        return;
    }
    input_reserve(request);
    uint64_t chain = synthetic_key(core->digest, request->tokens, 0);
    for (int i = 0; i + 1 < request->seq.prompt; i++) {
        chain = hash64(&request->tokens[i], sizeof(int32_t), chain);
        if (i >= request->logprob_start) {
            float logprob = 0.0f;
            (void)synthetic_token(chain ^ (uint64_t)request->tokens[i + 1], 0, &logprob);
            int at = request->input_logprob_count++;
            request->input_logprobs[at] = logprob;
            for (int k = 0; k < request->top_count; k++) {
                request->input_alts[at * request->top_count + k] =
                    (TokenAlt){request->tokens[i + 1] + k, logprob - (float)k};
            }
        }
    }
}

static void synthetic_sample(Core *core, EngineRequest *request, int64_t now_us)
{
    if (request->synthetic_epoch != core->epoch) {
        char garbled[CORE_NAME_MAX + 16];
        bool wrong = request->fault_garble || core->garbled;
        (void)str_format(garbled, sizeof garbled, "%s%s", core->digest, wrong ? "/garbled" : "");
        request->synthetic_key = synthetic_key(garbled, request->tokens,
                                               (size_t)request->seq.prompt);
        request->synthetic_epoch = core->epoch;
    }
    int output = request_output_count(request);
    float logprob = 0.0f;
    int32_t id = synthetic_token(request->synthetic_key, output, &logprob);
    if (core->config.synthetic_vocab < SYNTHETIC_VOCAB) {
        int32_t first = SYNTHETIC_EOS + 1;
        id = first + (id - first) % (core->config.synthetic_vocab - first);
    }
    int64_t length = synthetic_length(request->synthetic_key, request->max_new);
    bool ends = output + 1 >= length && request->fault_length == 0 && !request->fault_nostop;
    if (request->fault_empty || (ends && !request->ignore_eos &&
                                 output + 1 >= request->params.min_new_tokens)) {
        id = SYNTHETIC_EOS;
    }
    for (int k = 0; k < request->top_count; k++) {
        core->alts[k] = (TokenAlt){id + k, logprob - (float)k};
    }
    core_append(core, request, id, logprob, core->alts, now_us);
}

/* ---- the step ------------------------------------------------------------------------------- */

static void end_of_prompt_only(Core *core, EngineRequest *request, int64_t now_us)
{
    core_finish(core, request, REQUEST_LENGTH, now_us); /* max_new_tokens 0: scoring, warming */
}

static void run_synthetic(Core *core, const SchedPlan *plan, int64_t now_us)
{
    for (int i = 0; i < plan->count; i++) {
        EngineRequest *request = (EngineRequest *)plan->pieces[i].seq;
        if (request->seq.state != SEQ_RUNNING || !plan->pieces[i].last) {
            continue;
        }
        synthetic_input(core, request);
        if (request->max_new == 0) {
            end_of_prompt_only(core, request, now_us);
        } else {
            synthetic_sample(core, request, now_us);
        }
    }
}

/* First row of the piece whose logits are wanted: scoring rows, the last one of a last piece. */
static int rows_from(const EngineRequest *request, const SchedPiece *piece)
{
    int from = piece->last && request->max_new > 0 ? piece->count - 1 : piece->count;
    int position = next_input_position(request);
    if (position >= 0 && position < piece->start + piece->count) {
        int row = position > piece->start ? position - piece->start : 0;
        from = row < from ? row : from;
    }
    return from;
}

static bool run_model(Core *core, const SchedPlan *plan, int64_t now_us)
{
    if (plan->count > core->piece_capacity) {
        core->piece_capacity = plan->count + 16;
        core->pieces = xrealloc(core->pieces, (size_t)core->piece_capacity, sizeof *core->pieces);
    }
    for (int i = 0; i < plan->count; i++) {
        const SchedPiece *piece = &plan->pieces[i];
        const EngineRequest *request = (const EngineRequest *)piece->seq;
        core->pieces[i] = (InferSeq){request->tokens + piece->start, piece->count, piece->start,
                                     piece->seq->blocks, rows_from(request, piece)};
    }
    const float *row = NULL;
    int rows = 0;
    Fault fault = {0};
    if (infer_step(core->infer, core->pieces, plan->count, &row, &rows, &fault)) {
        for (int i = 0; i < plan->count; i++) {
            EngineRequest *request = (EngineRequest *)plan->pieces[i].seq;
            (void)str_format(request->error, sizeof request->error, "%s", fault.sentence);
            core_finish(core, request, REQUEST_FAILED, now_us);
        }
        return false;
    }
    sched_commit(core->sched);
    for (int i = 0; i < plan->count; i++) {
        const SchedPiece piece = plan->pieces[i];
        EngineRequest *request = (EngineRequest *)piece.seq;
        int first = core->pieces[i].logits_from;
        const float *last = row + (size_t)(piece.count - 1 - first) * (size_t)core->config.vocab;
        for (int k = first; k < piece.count; k++, row += core->config.vocab) {
            if (next_input_position(request) == piece.start + k) {
                take_input_row(core, request, row, piece.start + k);
            }
        }
        if (piece.last && request->max_new == 0) {
            end_of_prompt_only(core, request, now_us);
        } else if (piece.last) {
            sample_row(core, request, last, now_us);
        }
    }
    return true;
}

static void note_window(Core *core, int64_t now_us)
{
    int64_t passed = now_us - core->window_start_us;
    if (passed >= 1000000) {
        core->stats.gen_throughput = passed < 3000000
                                         ? (double)core->window_tokens * 1e6 / (double)passed : 0.0;
        core->window_start_us = now_us;
        core->window_tokens = 0;
    }
}

static void note_plan(Core *core, const SchedPlan *plan)
{
    for (int i = 0; i < plan->retracted_count; i++) {
        EngineRequest *request = (EngineRequest *)plan->retracted[i];
        request->stage = STAGE_WAITING;
        core->stats.retracted_requests++;
        core->stats.retracted_input += request->seq.prompt;
        core->stats.retracted_output += request_output_count(request);
    }
    for (int i = 0; i < plan->count; i++) {
        EngineRequest *request = (EngineRequest *)plan->pieces[i].seq;
        if (request->stage != STAGE_RUNNING) {
            request->stage = STAGE_RUNNING;
            if (request->seq.retractions == 0) {
                core->stats.cached_tokens += request->seq.cached;
            }
        }
        if (plan->pieces[i].start < request->seq.prompt) {
            core->stats.prefill_tokens += plan->pieces[i].count;
        }
    }
}

bool core_step(Core *core, int64_t now_us)
{
    if (core->faults.freeze || (core->pause != PAUSE_NONE && core->urgent == 0)) {
        return false;
    }
    const SchedPlan *plan = sched_plan(core->sched);
    if (plan->impossible) {
        EngineRequest *request = (EngineRequest *)plan->impossible;
        (void)str_format(request->error, sizeof request->error,
                         "the KV cache of %d tokens cannot hold this request of %d tokens",
                         sched_total_tokens(core->sched), request->seq.count);
        core_finish(core, request, REQUEST_FAILED, now_us);
        core_apply_swap_if_possible(core);
        return true;
    }
    note_plan(core, plan);
    if (plan->count == 0) {
        note_window(core, now_us);
        return false;
    }
    if (core->config.synthetic) {
        sched_commit(core->sched);
        run_synthetic(core, plan, now_us);
    } else {
        run_model(core, plan, now_us);
    }
    core->stats.steps++;
    core->stats.updated_us = now_us;
    note_window(core, now_us);
    core_apply_swap_if_possible(core);
    return true;
}
