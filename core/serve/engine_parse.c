/* The body of /generate into requests. Texts of refusals are SGLang's where it has one
 * (sglang-api 6.7); what kills SGLang (ids outside the vocabulary, empty text) is refused. */
#include "core/base/mem.h"
#include "core/serve/engine_local.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Prompts {
    TokenIds *items;
    int count;
    bool batch; /* a list was given: the reply is an array */
} Prompts;

typedef struct Shared { /* members of the body that hold for every sample */
    bool stream, want_logprobs, while_paused;
    int logprob_start, top_count;
} Shared;

static bool fail(ParseFailure *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool fail(ParseFailure *why, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(why->message, sizeof why->message, format, arguments);
    va_end(arguments);
    return false;
}

static bool fail_shape(ParseFailure *why, const char *member, const char *should)
{
    why->as_object = true;
    return fail(why, "1 validation error: body.%s: %s", member, should);
}

static void prompts_free(Prompts *prompts)
{
    for (int i = 0; i < prompts->count; i++) {
        token_ids_free(&prompts->items[i]);
    }
    free(prompts->items);
}

/* ---- prompts -------------------------------------------------------------------------------- */

static bool read_ids(Engine *engine, const cJSON *list, TokenIds *out, ParseFailure *why)
{
    int n = cJSON_GetArraySize(list);
    if (n == 0) {
        return fail(why, "input_ids cannot be empty.");
    }
    out->ids = xcalloc((size_t)n, sizeof *out->ids);
    out->capacity = (size_t)n;
    double limit = engine->settings->synthetic ? 2147483647.0 : (double)engine->vocab;
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsNumber(item) || item->valuedouble != floor(item->valuedouble)) {
            return fail_shape(why, "input_ids", "Input should be a list of integers");
        }
        if (item->valuedouble < 0 || item->valuedouble >= limit) {
            return fail(why, "input_ids contains out-of-vocabulary token id %.0f; valid range is "
                        "[0, %.0f).", item->valuedouble, limit);
        }
        out->ids[out->count++] = (int32_t)item->valuedouble;
    }
    return true;
}

static bool read_text(Engine *engine, const cJSON *text, TokenIds *out, ParseFailure *why)
{
    if (!engine->tokenizer && !engine->settings->synthetic) {
        return fail(why, "The engine initialized with skip_tokenizer_init=True cannot accept text "
                    "prompts. Please provide input_ids.");
    }
    Fault fault = {0};
    if (engine_text_encode(engine->tokenizer, str_from(text->valuestring), out, &fault)) {
        return fail(why, "%s", fault.sentence);
    }
    return out->count > 0 ? true : fail(why, "The text prompt is empty: it gives no token.");
}

static bool read_prompts(Engine *engine, const cJSON *body, Prompts *out, ParseFailure *why)
{
    const cJSON *text = json_get(body, "text");
    const cJSON *ids = json_get(body, "input_ids");
    bool by_text = text && !cJSON_IsNull(text);
    const cJSON *given = by_text ? text : ids;
    if (!given || cJSON_IsNull(given)) {
        return fail(why, "Either text, input_ids or input_embeds should be provided.");
    }
    if (by_text ? !cJSON_IsString(text) && !cJSON_IsArray(text) : !cJSON_IsArray(ids)) {
        return by_text ? fail_shape(why, "text", "Input should be a valid string or list")
                       : fail_shape(why, "input_ids", "Value error, must be list or null");
    }
    out->batch = by_text ? cJSON_IsArray(text) : cJSON_IsArray(given->child);
    int n = out->batch ? cJSON_GetArraySize(given) : 1;
    if (n == 0) {
        return fail(why, "the list of prompts is empty");
    }
    if (n > ENGINE_BATCH_MAX) {
        return fail(why, "%d prompts in one call, at most %d are taken", n, ENGINE_BATCH_MAX);
    }
    out->items = xcalloc((size_t)n, sizeof *out->items);
    out->count = n;
    const cJSON *item = out->batch ? given->child : given;
    for (int i = 0; i < n; i++, item = item->next) {
        if (by_text ? !cJSON_IsString(item) : !cJSON_IsArray(item)) {
            return fail_shape(why, by_text ? "text" : "input_ids", "prompts of mixed types");
        }
        if (!(by_text ? read_text(engine, item, &out->items[i], why)
                      : read_ids(engine, item, &out->items[i], why))) {
            return false;
        }
    }
    return true;
}

/* ---- sampling parameters -------------------------------------------------------------------- */

static const char SAMPLING_MEMBERS[] =
    "`max_new_tokens`, `stop`, `stop_token_ids`, `stop_regex`, `temperature`, `top_p`, `top_k`, "
    "`min_p`, `frequency_penalty`, `presence_penalty`, `repetition_penalty`, `min_new_tokens`, "
    "`n`, `json_schema`, `regex`, `ebnf`, `structural_tag`, `ignore_eos`, `skip_special_tokens`, "
    "`spaces_between_special_tokens`, `no_stop_trim`, `stream_interval`, `logit_bias`, "
    "`sampling_seed`, `seed`, `custom_params`";

static bool known_members(const cJSON *params, ParseFailure *why)
{
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, params)
    {
        char quoted[80];
        bool fits = str_format(quoted, sizeof quoted, "`%s`", item->string);
        if (!fits || !strstr(SAMPLING_MEMBERS, quoted)) {
            why->as_string = true;
            return fail(why, "unknown field `%.60s`, expected one of %s", item->string,
                        SAMPLING_MEMBERS);
        }
        static const char *const grammars[] = {"json_schema", "regex", "ebnf", "structural_tag",
                                               "stop_regex"};
        for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
            if (strcmp(item->string, grammars[i]) == 0 && !cJSON_IsNull(item)) {
                return fail(why, "%s is not supported by this engine", grammars[i]);
            }
        }
    }
    return true;
}

static bool number(const cJSON *params, const char *key, bool whole, double *out,
                   ParseFailure *why)
{
    const cJSON *item = json_get(params, key);
    if (!item || cJSON_IsNull(item)) {
        return true;
    }
    if (!cJSON_IsNumber(item) || (whole && item->valuedouble != floor(item->valuedouble))) {
        why->as_string = true;
        return fail(why, "invalid type for `%s`, expected %s", key, whole ? "an integer" : "f64");
    }
    *out = item->valuedouble;
    return true;
}

typedef struct Range {
    const char *key, *sentence;
    double low, high;
    bool low_open, whole;
    double standard;
} Range;

enum { P_TEMPERATURE, P_TOP_P, P_TOP_K, P_MIN_P, P_FREQUENCY, P_PRESENCE, P_REPETITION,
       P_MIN_NEW, P_N, P_INTERVAL, P_COUNT };

static bool read_numbers(const cJSON *params, double values[P_COUNT], ParseFailure *why)
{
    static const Range ranges[P_COUNT] = {
        {"temperature", "temperature must be a non-negative finite number", 0, 1e30, 0, 0, 1},
        {"top_p", "top_p must be in (0, 1]", 0, 1, 1, 0, 1},
        {"top_k", "top_k must be -1 (disable) or at least 1", -1, 2147483647, 0, 1, -1},
        {"min_p", "min_p must be in [0, 1]", 0, 1, 0, 0, 0},
        {"frequency_penalty", "frequency_penalty must be in [-2, 2]", -2, 2, 0, 0, 0},
        {"presence_penalty", "presence_penalty must be in [-2, 2]", -2, 2, 0, 0, 0},
        {"repetition_penalty", "repetition_penalty must be in (0, 2]", 0, 2, 1, 0, 1},
        {"min_new_tokens", "min_new_tokens must be at least 0", 0, 2147483647, 0, 1, 0},
        {"n", "n must be at least 1", 1, ENGINE_BATCH_MAX, 0, 1, 1},
        {"stream_interval", "stream_interval must be at least 1", 1, 1e6, 0, 1, 0},
    };
    for (int i = 0; i < P_COUNT; i++) {
        const Range *range = &ranges[i];
        values[i] = range->standard;
        if (!number(params, range->key, range->whole, &values[i], why)) {
            return false;
        }
        bool given = cJSON_IsNumber(json_get(params, range->key));
        double v = values[i];
        if (given && i == P_N && v > range->high) {
            return fail(why, "n must be at most %d, got %.15g.", ENGINE_BATCH_MAX, v);
        }
        if (given && (!(v >= range->low && v <= range->high) ||
                      (range->low_open && v <= range->low) || (i == P_TOP_K && v == 0))) {
            return fail(why, "%s, got %.15g.", range->sentence, v);
        }
    }
    return true;
}

static bool read_stop_strings(const cJSON *params, EngineRequest *request, ParseFailure *why)
{
    const cJSON *stop = json_get(params, "stop");
    if (!stop || cJSON_IsNull(stop)) {
        return true;
    }
    const cJSON *item = cJSON_IsArray(stop) ? stop->child : stop;
    for (; item; item = cJSON_IsArray(stop) ? item->next : NULL) {
        if (!cJSON_IsString(item)) {
            why->as_string = true;
            return fail(why, "invalid type for `stop`, expected a string or a list of strings");
        }
        if (request->stop_count == REQUEST_STOPS_MAX) {
            return fail(why, "stop: more than %d strings", REQUEST_STOPS_MAX);
        }
        if (item->valuestring[0]) {
            request->stops[request->stop_count++] = xstrdup(item->valuestring);
        }
    }
    return true;
}

static bool read_stop_ids(const Engine *engine, const cJSON *params, EngineRequest *request,
                          ParseFailure *why)
{
    const cJSON *list = json_get(params, "stop_token_ids");
    if (list && !cJSON_IsNull(list) && !cJSON_IsArray(list)) {
        why->as_string = true;
        return fail(why, "invalid type for `stop_token_ids`, expected a list of integers");
    }
    if (request->ignore_eos) {
        return true; /* upstream: ignore_eos switches stop_token_ids off, stop strings stay */
    }
    int given = cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 0;
    int total = given + engine->core.eos_count;
    request->stop_ids = xcalloc((size_t)total, sizeof *request->stop_ids);
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, list)
    {
        if (cJSON_IsNumber(item)) { /* nulls are dropped */
            request->stop_ids[request->stop_id_count++] = item->valueint;
        }
    }
    for (int i = 0; i < engine->core.eos_count; i++) {
        request->stop_ids[request->stop_id_count++] = engine->core.eos[i];
    }
    return true;
}

static bool read_bias(const Engine *engine, const cJSON *params, EngineRequest *request,
                      ParseFailure *why)
{
    const cJSON *bias = json_get(params, "logit_bias");
    if (!bias || cJSON_IsNull(bias)) {
        return true;
    }
    size_t n = (size_t)cJSON_GetArraySize(bias);
    request->bias_ids = xcalloc(n, sizeof *request->bias_ids);
    request->bias = xcalloc(n, sizeof *request->bias);
    size_t at = 0;
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, bias)
    {
        int64_t id = -1;
        if (!cJSON_IsNumber(item) || !str_to_i64(str_from(item->string), &id) || id < 0 ||
            id >= engine->vocab) {
            return fail(why, "logit_bias must map token ids in [0, %d) to numbers, got \"%.40s\".",
                        engine->vocab, item->string ? item->string : "");
        }
        request->bias_ids[at] = (int32_t)id;
        request->bias[at++] = (float)item->valuedouble;
    }
    request->params.bias_ids = request->bias_ids;
    request->params.bias = request->bias;
    request->params.bias_count = at;
    return true;
}

/* Clipping as upstream: silently to what context and KV pool hold; asking for more than the
 * context with an explicit number is refused. */
static bool set_max_new(const Engine *engine, const cJSON *params, EngineRequest *request,
                        ParseFailure *why)
{
    int prompt = request->seq.prompt;
    int context = engine->core.context_length;
    int pool = engine->core.sched.blocks * engine->core.sched.block_tokens;
    const cJSON *given = json_get(params, "max_new_tokens");
    double wanted = given && cJSON_IsNull(given) ? 1e9 : 128;
    if (!number(params, "max_new_tokens", true, &wanted, why)) {
        return false;
    }
    if (wanted < 0) {
        return fail(why, "max_new_tokens must be at least 0, got %.0f.", wanted);
    }
    if (prompt >= context || prompt >= pool) {
        return fail(why, "The input (%d tokens) is longer than the model's context length (%d "
                    "tokens).", prompt, context < pool ? context : pool);
    }
    if (cJSON_IsNumber(given) && (double)prompt + wanted > (double)context) {
        return fail(why, "Requested token count exceeds the model's maximum context length of %d "
                    "tokens. You requested a total of %.0f tokens: %d tokens from the input "
                    "messages and %.0f tokens for the completion. Please reduce the number of "
                    "tokens in the input messages or the completion to fit within the limit.",
                    context, (double)prompt + wanted, prompt, wanted);
    }
    int most = (context < pool ? context : pool) - prompt;
    request->max_new = wanted < (double)most ? (int)wanted : most;
    return true;
}

static bool read_sampling(Engine *engine, const cJSON *params, EngineRequest *request, int *n,
                          bool *no_stop_trim, ParseFailure *why)
{
    double v[P_COUNT];
    if (!known_members(params, why) || !read_numbers(params, v, why) ||
        !set_max_new(engine, params, request, why)) {
        return false;
    }
    SamplingParams *p = &request->params;
    p->temperature = (float)v[P_TEMPERATURE];
    p->top_p = (float)v[P_TOP_P];
    p->top_k = (int32_t)v[P_TOP_K];
    p->min_p = (float)v[P_MIN_P];
    p->frequency_penalty = (float)v[P_FREQUENCY];
    p->presence_penalty = (float)v[P_PRESENCE];
    p->repetition_penalty = (float)v[P_REPETITION];
    if (json_get(params, "max_new_tokens") && v[P_MIN_NEW] > json_double(params, "max_new_tokens",
                                                                         v[P_MIN_NEW])) {
        return fail(why, "min_new_tokens must be in [0, max_new_tokens(%.0f)], got %.0f.",
                    json_double(params, "max_new_tokens", 0), v[P_MIN_NEW]);
    }
    p->min_new_tokens = v[P_MIN_NEW] < request->max_new ? (int32_t)v[P_MIN_NEW]
                                                        : (int32_t)request->max_new;
    request->uses_counts = v[P_FREQUENCY] != 0 || v[P_PRESENCE] != 0 || v[P_REPETITION] != 1;
    request->stream_interval = v[P_INTERVAL] > 0 ? (int)v[P_INTERVAL]
                                                 : (int)engine->settings->stream_interval;
    request->ignore_eos = json_bool(params, "ignore_eos", false);
    request->skip_special = json_bool(params, "skip_special_tokens", true);
    *no_stop_trim = json_bool(params, "no_stop_trim", false);
    *n = (int)v[P_N];
    double seed = -1;
    if (!number(params, "seed", true, &seed, why) ||
        !number(params, "sampling_seed", true, &seed, why)) {
        return false;
    }
    request->has_seed = seed >= 0;
    request->seed = seed >= 0 ? (uint64_t)seed : 0;
    if (!read_stop_strings(params, request, why) || !read_stop_ids(engine, params, request, why) ||
        !read_bias(engine, params, request, why)) {
        return false;
    }
    p->stop_ids = request->stop_ids;
    p->stop_count = request->stop_id_count;
    if (request->stop_count > 0 && !engine->tokenizer && !engine->settings->synthetic) {
        return fail(why, "stop strings need a tokenizer, and this model directory has no "
                    "tokenizer.json; use stop_token_ids");
    }
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static bool read_shared(const cJSON *body, Shared *shared, ParseFailure *why)
{
    double start = -1;
    double top = 0;
    if (!number(body, "logprob_start_len", true, &start, why) ||
        !number(body, "top_logprobs_num", true, &top, why)) {
        why->as_string = false;
        why->as_object = true;
        return false;
    }
    if (start < -1 || start > 2147483647.0) {
        return fail(why, "logprob_start_len must be -1 or a position of the prompt, got %.0f.",
                    start);
    }
    if (top < 0 || top > REQUEST_TOP_MAX) {
        return fail(why, "top_logprobs_num must be in [0, %d], got %.0f.", REQUEST_TOP_MAX, top);
    }
    static const char *const unsupported[] = {
        "input_embeds", "image_data", "video_data", "audio_data", "lora_path", "session_params",
        "custom_logit_processor", "token_ids_logprob", "bootstrap_room"};
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        const cJSON *item = json_get(body, unsupported[i]);
        if (item && !cJSON_IsNull(item) && !cJSON_IsFalse(item)) {
            return fail(why, "%s is not supported by this engine", unsupported[i]);
        }
    }
    shared->stream = json_bool(body, "stream", false);
    shared->want_logprobs = json_bool(body, "return_logprob", false);
    shared->while_paused = json_bool(body, "while_paused", false);
    shared->logprob_start = shared->want_logprobs ? (int)start : -1;
    shared->top_count = shared->want_logprobs ? (int)top : 0;
    return true;
}

static EngineRequest *copy_request(const EngineRequest *first)
{
    int prompt = first->seq.prompt;
    int32_t *tokens = xcalloc((size_t)prompt, sizeof *tokens);
    memcpy(tokens, first->tokens, (size_t)prompt * sizeof *tokens);
    EngineRequest *copy = request_new(tokens, prompt);
    copy->max_new = first->max_new;
    copy->params = first->params;
    copy->ignore_eos = first->ignore_eos;
    copy->skip_special = first->skip_special;
    copy->uses_counts = first->uses_counts;
    copy->stream_interval = first->stream_interval;
    copy->has_seed = first->has_seed;
    copy->seed = first->seed;
    copy->stop_id_count = first->stop_id_count;
    copy->stop_ids = xcalloc(first->stop_id_count, sizeof *copy->stop_ids);
    copy->bias_ids = xcalloc(first->params.bias_count, sizeof *copy->bias_ids);
    copy->bias = xcalloc(first->params.bias_count, sizeof *copy->bias);
    if (first->stop_id_count > 0) {
        memcpy(copy->stop_ids, first->stop_ids, first->stop_id_count * sizeof *copy->stop_ids);
    }
    if (first->params.bias_count > 0) {
        memcpy(copy->bias_ids, first->bias_ids, first->params.bias_count * sizeof *copy->bias_ids);
        memcpy(copy->bias, first->bias, first->params.bias_count * sizeof *copy->bias);
    }
    copy->params.stop_ids = copy->stop_ids;
    copy->params.bias_ids = copy->bias_ids;
    copy->params.bias = copy->bias;
    for (int i = 0; i < first->stop_count; i++) {
        copy->stops[copy->stop_count++] = xstrdup(first->stops[i]);
    }
    return copy;
}

static void apply_shared(EngineRequest *request, const Shared *shared, int n, int sample)
{
    request->stream = shared->stream;
    request->want_logprobs = shared->want_logprobs;
    request->top_count = shared->top_count;
    request->while_paused = shared->while_paused;
    int last = request->seq.prompt - 1;
    request->logprob_start = shared->logprob_start > last ? last : shared->logprob_start;
    if (request->logprob_start >= 0) {
        request->seq.match_limit = request->logprob_start; /* its logits must be computed */
    }
    if (request->has_seed && n > 1) {
        request->seed += (uint64_t)sample;
    }
}

static bool rids_given(Engine *engine, const cJSON *body, Call *call, int prompts, int n,
                       ParseFailure *why)
{
    const cJSON *rid = json_get(body, "rid");
    bool list = cJSON_IsArray(rid);
    if (rid && !cJSON_IsNull(rid) && !cJSON_IsString(rid) && !list) {
        return fail_shape(why, "rid", "Input should be a valid string or list");
    }
    if (list && cJSON_GetArraySize(rid) != prompts) {
        return fail(why, "The specified rids length mismatch with the batch_size for batch "
                    "processing.");
    }
    const cJSON *item = list ? rid->child : rid;
    for (int i = 0; i < call->count; i++) {
        const char *given = cJSON_IsString(item) ? item->valuestring : NULL;
        Sample *sample = call->samples[i];
        if (!given || !given[0]) {
            sample->rid = xasprintf("%016llx%016llx", (unsigned long long)rng_u64(&engine->rng),
                                    (unsigned long long)rng_u64(&engine->rng));
        } else if (n > 1 || (call->array && !list)) {
            sample->rid = xasprintf("%s_%d", given, list ? i % n : i);
        } else {
            sample->rid = xstrdup(given);
        }
        if (engine_find_rid(engine, sample->rid)) {
            return fail(why, "Duplicate request ID detected: %.200s", sample->rid);
        }
        for (int k = 0; list && k < i; k++) {
            if (strcmp(call->samples[k]->rid, sample->rid) == 0) {
                return fail(why, "Duplicate request IDs detected within the request: ['%.200s']",
                            sample->rid);
            }
        }
        item = list && (i + 1) % n == 0 ? item->next : item;
    }
    return true;
}

static Call *build_call(Engine *engine, const cJSON *params, Prompts *prompts,
                        const Shared *shared, int *n, ParseFailure *why)
{
    Call *call = NULL;
    for (int i = 0; i < prompts->count; i++) {
        TokenIds *ids = &prompts->items[i];
        EngineRequest *request = request_new(ids->ids, (int)ids->count);
        *ids = (TokenIds){NULL, 0, 0};
        bool no_trim = false;
        int samples = 1;
        const cJSON *own = cJSON_IsArray(params) ? cJSON_GetArrayItem(params, i) : params;
        if (!read_sampling(engine, own, request, &samples, &no_trim, why)) {
            request_free(request);
            call_free(call);
            return NULL;
        }
        if (!call) {
            *n = samples;
            if ((int64_t)samples * prompts->count > ENGINE_BATCH_MAX) {
                (void)fail(why, "%d prompts with n=%d: at most %d samples a call",
                           prompts->count, samples, ENGINE_BATCH_MAX);
                request_free(request);
                return NULL;
            }
            call = call_new(engine, samples * prompts->count);
            call->no_stop_trim = no_trim;
        }
        if (shared->while_paused && request->max_new > 1) {
            (void)fail(why, "while_paused is for scoring: max_new_tokens must be 0 or 1, not %d.",
                       request->max_new);
            request_free(request);
            call_free(call);
            return NULL;
        }
        for (int k = 0; k < *n; k++) {
            EngineRequest *one = k + 1 < *n ? copy_request(request) : request;
            apply_shared(one, shared, *n, k);
            call->samples[i * *n + k]->request = one;
        }
    }
    return call;
}

bool engine_parse_generate(Engine *engine, const cJSON *body, Call **out, ParseFailure *why)
{
    *out = NULL;
    memset(why, 0, sizeof *why);
    Shared shared = {0};
    Prompts prompts = {0};
    Call *call = NULL;
    const cJSON *params = json_get(body, "sampling_params");
    int n = 1;
    bool good = read_prompts(engine, body, &prompts, why) && read_shared(body, &shared, why);
    if (good && params && !cJSON_IsNull(params) && !cJSON_IsObject(params) &&
        !(cJSON_IsArray(params) && cJSON_GetArraySize(params) == prompts.count)) {
        good = fail_shape(why, "sampling_params", "Input should be an object, or a list of one "
                          "object a prompt");
    }
    if (good) {
        call = build_call(engine, params, &prompts, &shared, &n, why);
        good = call != NULL;
    }
    if (good) {
        call->stream = shared.stream;
        call->want_logprobs = shared.want_logprobs;
        call->array = prompts.batch || n > 1;
        call->skip_text = !engine->tokenizer && !engine->settings->synthetic;
        good = rids_given(engine, body, call, prompts.count, n, why);
    }
    prompts_free(&prompts);
    if (!good) {
        call_free(call);
        return false;
    }
    *out = call;
    return true;
}
