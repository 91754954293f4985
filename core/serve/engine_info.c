/* What an engine says of itself: information and load. */
#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/serve/engine_local.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The dialect spoken is this release's; the part behind the plus names the server. */
static const char VERSION_TEXT[] = "0.5.15.post1+rolltop." ROLLTOP_VERSION;

void route_root(Engine *engine, HttpExchange *exchange)
{
    Text body;
    text_init(&body, 512);
    text_addf(&body, "rolltop engine %s\n", engine->name);
    http_reply(exchange, 200, "text/plain; charset=utf-8", text_str(&body), NULL);
    text_free(&body);
}

void route_ping(Engine *engine, HttpExchange *exchange)
{
    (void)engine;
    reply_empty(exchange, 200);
}

const char *engine_version(Engine *engine)
{
    return engine_fault(engine, FAULT_VER_RESET) ? "default" : engine->version;
}

void engine_stats(Engine *engine, CoreStats *out)
{
    runner_stats(engine->runner, out);
    if (engine->stuck) {
        CoreStats live = *out;
        *out = engine->stuck_stats; /* gauges repeat, counters go on */
        out->decode_tokens = live.decode_tokens;
        out->prefill_tokens = live.prefill_tokens;
        out->cached_tokens = live.cached_tokens;
        out->retracted_requests = live.retracted_requests;
        out->retracted_input = live.retracted_input;
        out->retracted_output = live.retracted_output;
    }
}

static void add_arguments(Engine *engine, JsonOut *json)
{
    const EngineSettings *s = engine->settings;
    json_member_string(json, "model_path", engine->model_path);
    json_member_string(json, "served_model_name", engine->served_name);
    json_member_string(json, "tokenizer_path", engine->model_path);
    json_member_bool(json, "skip_tokenizer_init", !engine->tokenizer && !s->synthetic);
    json_member_string(json, "load_format", "auto");
    json_member_string(json, "dtype", s->bf16 ? "bfloat16" : "float32");
    json_member_string(json, "weight_version", engine_version(engine));
    static const char *const ones[] = {"tp_size", "dp_size", "pp_size", "ep_size", "nnodes",
                                       "tokenizer_worker_num"};
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
        json_member_i64(json, ones[i], 1);
    }
    json_member_i64(json, "node_rank", 0);
    json_member_bool(json, "enable_dp_attention", false);
    json_member_string(json, "host", engine->host);
    json_member_i64(json, "port", engine->port);
    json_key(json, "nccl_port");
    json_put_null(json);
    json_key(json, "dist_init_addr");
    json_put_null(json);
    json_member_string(json, "disaggregation_mode", "null");
    json_member_bool(json, "incremental_streaming_output", s->incremental);
    json_member_i64(json, "stream_interval", s->stream_interval);
    json_member_bool(json, "enable_metrics", true);
    json_member_bool(json, "enable_memory_saver", false);
    json_member_bool(json, "enable_return_routed_experts", false);
    json_member_i64(json, "max_running_requests", s->max_running);
    json_member_i64(json, "max_queued_requests", s->max_queued);
    json_member_i64(json, "context_length", engine->core.context_length);
    json_member_i64(json, "page_size", engine->core.sched.block_tokens);
    json_member_i64(json, "chunked_prefill_size", engine->core.sched.max_step_tokens);
    json_member_double(json, "mem_fraction_static", 0.9);
    json_key(json, "api_key"); /* never told, unlike upstream */
    json_put_null(json);
    json_key(json, "admin_api_key");
    json_put_null(json);
}

void route_server_info(Engine *engine, HttpExchange *exchange)
{
    CoreStats stats;
    engine_stats(engine, &stats);
    Text body;
    JsonOut json;
    reply_open(&body, &json, 65536);
    add_arguments(engine, &json);
    json_member_string(&json, "status", "ready");
    json_member_i64(&json, "max_total_num_tokens", stats.total_tokens);
    json_member_i64(&json, "max_req_input_len", engine->core.context_length - 1);
    json_key(&json, "internal_states");
    json_array_begin(&json);
    json_object_begin(&json);
    json_member_double(&json, "last_gen_throughput", stats.gen_throughput);
    json_member_i64(&json, "effective_max_running_requests_per_dp",
                    engine->settings->max_running);
    json_key(&json, "memory_usage");
    json_object_begin(&json);
    json_member_double(&json, "weight",
                       engine->weights ? (double)weights_bytes(engine->weights) / 1e9 : 0.0);
    json_member_i64(&json, "token_capacity", stats.total_tokens);
    json_object_end(&json);
    json_object_end(&json);
    json_array_end(&json);
    json_member_string(&json, "version", VERSION_TEXT);
    /* rolltop's own: identity of the process behind the address, and the pause that upstream
     * hides. */
    json_member_string(&json, "engine_name", engine->name);
    json_member_i64(&json, "pid", (int64_t)getpid());
    json_member_i64(&json, "start_time_us", engine->start_wall_us);
    json_member_bool(&json, "paused", engine->pause != PAUSE_NONE);
    json_member_string(&json, "pause_mode", engine->pause == PAUSE_ABORT     ? "abort"
                                            : engine->pause == PAUSE_RETRACT ? "retract"
                                            : engine->pause == PAUSE_IN_PLACE ? "in_place"
                                                                              : NULL);
    json_member_bool(&json, "updating", engine->updating);
    json_member_bool(&json, "synthetic", engine->settings->synthetic);
    reply_send(exchange, 200, &body, &json);
}

void route_model_info(Engine *engine, HttpExchange *exchange)
{
    Text body;
    JsonOut json;
    reply_open(&body, &json, 16384);
    json_member_string(&json, "model_path", engine->model_path);
    json_member_string(&json, "tokenizer_path", engine->model_path);
    json_member_bool(&json, "is_generation", true);
    json_key(&json, "preferred_sampling_params");
    json_put_null(&json);
    json_member_string(&json, "weight_version", engine_version(engine));
    json_member_bool(&json, "has_image_understanding", false);
    json_member_bool(&json, "has_audio_understanding", false);
    bool llama = engine->weights && engine->model.arch == MODEL_LLAMA;
    json_member_string(&json, "model_type", llama ? "llama" : "qwen3");
    json_key(&json, "architectures");
    json_array_begin(&json);
    json_put_string(&json, llama ? "LlamaForCausalLM" : "Qwen3ForCausalLM");
    json_array_end(&json);
    reply_send(exchange, 200, &body, &json);
}

void route_weight_version(Engine *engine, HttpExchange *exchange)
{
    Text body;
    JsonOut json;
    reply_open(&body, &json, 4096);
    json_member_string(&json, "weight_version", engine_version(engine));
    reply_send(exchange, 200, &body, &json);
}

void route_models(Engine *engine, HttpExchange *exchange)
{
    Text body;
    JsonOut json;
    reply_open(&body, &json, 16384);
    json_member_string(&json, "object", "list");
    json_key(&json, "data");
    json_array_begin(&json);
    json_object_begin(&json);
    json_member_string(&json, "id", engine->served_name);
    json_member_string(&json, "object", "model");
    json_member_i64(&json, "created", engine->start_wall_us / 1000000);
    json_member_string(&json, "owned_by", "rolltop");
    json_member_string(&json, "root", engine->model_path);
    json_key(&json, "parent");
    json_put_null(&json);
    json_member_i64(&json, "max_model_len", engine->core.context_length);
    json_object_end(&json);
    json_array_end(&json);
    reply_send(exchange, 200, &body, &json);
}

/* ---- load ----------------------------------------------------------------------------------- */

static const char *stage_name(int stage)
{
    static const char *const names[] = {"gate", "waiting", "running", "ended"};
    return names[stage];
}

static int64_t waiting_tokens(const Engine *engine)
{
    int64_t tokens = 0;
    for (const Sample *sample = engine->samples; sample; sample = sample->next) {
        if (sample->request->stage == STAGE_WAITING || sample->request->stage == STAGE_GATE) {
            tokens += sample->prompt_tokens + sample->request->outputs;
        }
    }
    return tokens;
}

static void add_inflight(const Engine *engine, JsonOut *json)
{
    int64_t now = clock_mono_us();
    json_key(json, "inflight");
    json_array_begin(json);
    json_object_begin(json);
    json_member_string(json, "name", "all");
    json_member_i64(json, "num_reqs", engine->live);
    json_key(json, "reqs");
    json_array_begin(json);
    for (const Sample *sample = engine->samples; sample; sample = sample->next) {
        json_object_begin(json);
        json_member_string(json, "rid", sample->rid);
        json_key(json, "bootstrap_room");
        json_put_null(json);
        json_member_i64(json, "seqlen", sample->prompt_tokens + sample->request->outputs);
        json_member_i64(json, "output_tokens", sample->request->outputs);
        json_member_string(json, "stage", stage_name(sample->request->stage));
        json_member_double(json, "age_s", (double)(now - sample->started_us) / 1e6);
        json_object_end(json);
    }
    json_array_end(json);
    json_object_end(json);
    json_array_end(json);
}

static void add_core_load(Engine *engine, const CoreStats *stats, JsonOut *json)
{
    double used = stats->total_tokens > 0 ? (double)stats->used_tokens / stats->total_tokens : 0;
    int64_t computed = stats->prefill_tokens + stats->cached_tokens;
    int64_t max_running = engine->settings->max_running;
    json_member_i64(json, "dp_rank", 0);
    json_member_double(json, "timestamp", (double)clock_wall_us() / 1e6);
    json_member_i64(json, "num_running_reqs", stats->running);
    json_member_i64(json, "num_waiting_reqs", stats->waiting + stats->gated);
    json_member_i64(json, "num_used_tokens", stats->used_tokens);
    json_member_i64(json, "num_total_tokens", stats->used_tokens + waiting_tokens(engine));
    json_member_i64(json, "max_total_num_tokens", stats->total_tokens);
    json_member_i64(json, "max_running_requests", max_running);
    json_member_double(json, "token_usage", used);
    json_member_double(json, "gen_throughput", stats->gen_throughput);
    json_member_double(json, "cache_hit_rate", computed > 0 ? (double)stats->cached_tokens /
                                                              (double)computed : 0.0);
    json_member_double(json, "utilization", (double)stats->running / (double)max_running);
    json_member_i64(json, "gen_tokens_total", stats->decode_tokens); /* rolltop's own */
    json_member_bool(json, "paused", stats->pause != PAUSE_NONE);
}

enum { LOAD_MEMORY = 1, LOAD_DISAGG = 2, LOAD_QUEUES = 4, LOAD_INFLIGHT = 8, LOAD_ALL = 7 };

static bool parse_include(Str list, unsigned *out)
{
    Str part;
    *out = 0;
    while (str_split(&list, ',', &part)) {
        static const struct { const char *name; unsigned bits; } table[] = {
            {"core", 0}, {"memory", LOAD_MEMORY}, {"spec", 0}, {"lora", 0},
            {"disagg", LOAD_DISAGG}, {"queues", LOAD_QUEUES}, {"inflight", LOAD_INFLIGHT},
            {"all", LOAD_ALL | LOAD_INFLIGHT}};
        size_t i = 0;
        while (i < 8 && !str_equal(part, str_from(table[i].name))) {
            i++;
        }
        if (i == 8) {
            return false;
        }
        *out |= table[i].bits;
    }
    return true;
}

static void add_load(Engine *engine, unsigned include, JsonOut *json)
{
    CoreStats stats;
    engine_stats(engine, &stats);
    json_object_begin(json);
    add_core_load(engine, &stats, json);
    if (include & LOAD_MEMORY) {
        json_key(json, "memory");
        json_object_begin(json);
        json_member_double(json, "weight_gb", engine->weights
                           ? (double)weights_bytes(engine->weights) / 1e9 : 0.0);
        json_member_i64(json, "token_capacity", stats.total_tokens);
        json_object_end(json);
    }
    if (include & LOAD_DISAGG) {
        json_key(json, "disaggregation");
        json_put_raw(json, STR("{\"mode\":\"null\"}"));
    }
    if (include & LOAD_QUEUES) {
        json_key(json, "queues");
        json_object_begin(json);
        json_member_i64(json, "waiting", stats.waiting);
        json_member_i64(json, "grammar", 0);
        json_member_i64(json, "paused", stats.gated);
        json_member_i64(json, "retracted", stats.pause == PAUSE_RETRACT ? stats.waiting : 0);
        json_object_end(json);
    }
    if (include & LOAD_INFLIGHT) {
        add_inflight(engine, json);
    }
    json_object_end(json);
}

void route_loads(Engine *engine, HttpExchange *exchange)
{
    Text value;
    text_init(&value, 4096);
    unsigned include = LOAD_ALL;
    if (http_query_get(exchange, "include", &value) && !parse_include(text_str(&value), &include)) {
        reply_error_object(engine, exchange, 400, "Bad Request", "include must be a comma list of "
                           "core, memory, spec, lora, disagg, queues, inflight, all");
        text_free(&value);
        return;
    }
    text_clear(&value);
    int64_t rank = 0;
    bool other_rank = http_query_get(exchange, "dp_rank", &value) &&
                      (!str_to_i64(text_str(&value), &rank) || rank != 0);
    text_free(&value);
    char stamp[40];
    clock_format_utc(clock_wall_us(), stamp, sizeof stamp);
    Text body;
    JsonOut json;
    reply_open(&body, &json, 64u << 20);
    json_member_string(&json, "timestamp", stamp);
    json_member_string(&json, "version", VERSION_TEXT);
    json_key(&json, "loads");
    json_array_begin(&json);
    if (!other_rank) {
        add_load(engine, include, &json);
    }
    json_array_end(&json);
    reply_send(exchange, 200, &body, &json);
}

void route_get_load(Engine *engine, HttpExchange *exchange)
{
    CoreStats stats;
    engine_stats(engine, &stats);
    int64_t waits = waiting_tokens(engine);
    Text body;
    text_init(&body, 4096);
    JsonOut json;
    json_begin(&json, &body);
    json_array_begin(&json);
    json_object_begin(&json);
    json_member_i64(&json, "dp_rank", 0);
    json_member_i64(&json, "num_reqs", stats.running + stats.waiting + stats.gated);
    json_member_i64(&json, "num_waiting_reqs", stats.waiting + stats.gated);
    json_member_i64(&json, "num_tokens", stats.used_tokens + waits);
    json_member_i64(&json, "num_pending_tokens", waits);
    json_member_double(&json, "ts_tic", (double)clock_mono_us() / 1e6);
    json_object_end(&json);
    json_array_end(&json);
    http_reply_json(exchange, 200, &body);
    text_free(&body);
}
