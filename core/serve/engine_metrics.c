/* /metrics in Prometheus text with SGLang's names (sglang-api 10). realtime_tokens_total is a true
 * counter here: it moves with every step, not once a logging interval. */
#include "core/base/clock.h"
#include "core/serve/engine_local.h"

#include <string.h>

void histogram_init(Histogram *histogram, const double *bounds, int count)
{
    memset(histogram, 0, sizeof *histogram);
    histogram->bounds = bounds;
    histogram->count = count;
}

void histogram_add(Histogram *histogram, double v, uint64_t times)
{
    int i = 0;
    while (i < histogram->count && v > histogram->bounds[i]) {
        i++;
    }
    histogram->counts[i] += times;
    histogram->total += times;
    histogram->sum += v * (double)times;
}

typedef struct Page {
    Text text;
    char labels[512], rank_labels[640];
} Page;

static void add_head(Page *page, const char *name, const char *type, const char *help)
{
    text_addf(&page->text, "# HELP sglang:%s %s\n# TYPE sglang:%s %s\n", name, help, name, type);
}

static void add_gauge(Page *page, const char *name, double v, const char *help)
{
    add_head(page, name, "gauge", help);
    text_addf(&page->text, "sglang:%s{%s} %.10g\n", name, page->rank_labels, v);
}

static void add_counter(Page *page, const char *name, const char *extra, double v,
                        const char *help)
{
    if (help) {
        add_head(page, name, "counter", help);
    }
    text_addf(&page->text, "sglang:%s{%s%s} %.15g\n", name, page->labels, extra, v);
}

static void add_histogram(Page *page, const char *name, const Histogram *histogram,
                          const char *help)
{
    add_head(page, name, "histogram", help);
    uint64_t sum = 0;
    for (int i = 0; i < histogram->count; i++) {
        sum += histogram->counts[i];
        text_addf(&page->text, "sglang:%s_bucket{%s,le=\"%g\"} %llu\n", name, page->labels,
                  histogram->bounds[i], (unsigned long long)sum);
    }
    text_addf(&page->text, "sglang:%s_bucket{%s,le=\"+Inf\"} %llu\n"
              "sglang:%s_sum{%s} %.10g\nsglang:%s_count{%s} %llu\n", name, page->labels,
              (unsigned long long)histogram->total, name, page->labels, histogram->sum, name,
              page->labels, (unsigned long long)histogram->total);
}

static void add_label_value(char *out, size_t size, const char *value)
{
    size_t n = 0;
    for (const char *c = value; *c && n + 3 < size; c++) {
        if (*c == '"' || *c == '\\') {
            out[n++] = '\\';
        }
        out[n++] = (unsigned char)*c < 0x20 ? '?' : *c;
    }
    out[n] = 0;
}

static void add_gauges(Engine *engine, Page *page, const CoreStats *stats)
{
    double total = stats->total_tokens > 0 ? stats->total_tokens : 1;
    double computed = (double)(stats->prefill_tokens + stats->cached_tokens);
    add_gauge(page, "num_running_reqs", stats->running, "Requests that run.");
    add_gauge(page, "num_queue_reqs", stats->waiting + stats->gated, "Requests that wait.");
    add_gauge(page, "token_usage", stats->used_tokens / total, "Share of the KV pool in use.");
    add_gauge(page, "num_used_tokens", stats->used_tokens, "KV tokens in use.");
    add_gauge(page, "kv_available_tokens",
              stats->total_tokens - stats->used_tokens - stats->evictable_tokens,
              "Free KV tokens.");
    add_gauge(page, "kv_evictable_tokens", stats->evictable_tokens, "Cached prefixes, evictable.");
    add_gauge(page, "max_total_num_tokens", stats->total_tokens, "KV tokens in all.");
    add_gauge(page, "page_size", engine->core.sched.block_tokens, "Tokens of a KV block.");
    add_gauge(page, "context_len", engine->core.context_length, "Longest context.");
    add_gauge(page, "gen_throughput", stats->gen_throughput, "Output tokens a second.");
    add_gauge(page, "cache_hit_rate",
              computed > 0 ? (double)stats->cached_tokens / computed : 0.0,
              "Share of prompt tokens that came from the cache.");
    add_gauge(page, "utilization",
              (double)stats->running / (double)engine->settings->max_running,
              "Running requests over the most that may run.");
    add_gauge(page, "num_paused_reqs", stats->gated, "Requests held at the pause gate.");
    add_head(page, "weight_load_duration_seconds", "gauge", "Seconds of the last update.");
    text_addf(&page->text, "sglang:weight_load_duration_seconds{%s,source=\"disk\"} %.10g\n",
              page->rank_labels, engine->load_seconds);
}

static void add_counters(Engine *engine, Page *page, const CoreStats *stats)
{
    add_head(page, "realtime_tokens_total", "counter", "Tokens processed, by mode.");
    text_addf(&page->text, "sglang:realtime_tokens_total{%s,mode=\"prefill_compute\"} %lld\n"
              "sglang:realtime_tokens_total{%s,mode=\"prefill_cache\"} %lld\n"
              "sglang:realtime_tokens_total{%s,mode=\"decode\"} %lld\n", page->rank_labels,
              (long long)stats->prefill_tokens, page->rank_labels,
              (long long)stats->cached_tokens, page->rank_labels,
              (long long)stats->decode_tokens);
    add_counter(page, "num_retracted_requests_total", "", (double)stats->retracted_requests,
                "Requests pushed back for lack of KV blocks.");
    add_counter(page, "num_retracted_input_tokens_total", "", (double)stats->retracted_input,
                "Their prompt tokens.");
    add_counter(page, "num_retracted_output_tokens_total", "", (double)stats->retracted_output,
                "Their output tokens.");
    add_counter(page, "num_requests_total", "", (double)engine->requests, "Finished requests.");
    add_counter(page, "num_aborted_requests_total", "", (double)engine->aborted, "Abort calls.");
    add_counter(page, "prompt_tokens_total", "", (double)engine->prompt_tokens,
                "Prompt tokens of finished requests.");
    add_counter(page, "generation_tokens_total", "", (double)engine->generation_tokens,
                "Output tokens of finished requests.");
    add_counter(page, "cached_tokens_total", ",cache_source=\"total\"",
                (double)engine->cached_tokens, "Cached prompt tokens of finished requests.");
    add_counter(page, "http_requests_total", "", (double)engine->http_requests, "HTTP requests.");
    add_counter(page, "http_responses_total", ",status_code=\"4xx\"", (double)engine->http_4xx,
                "HTTP error replies by class.");
    add_counter(page, "http_responses_total", ",status_code=\"5xx\"", (double)engine->http_5xx,
                NULL);
    add_counter(page, "process_cpu_seconds_total", "", (double)clock_cpu_us() / 1e6,
                "CPU time of the process.");
}

void route_metrics(Engine *engine, HttpExchange *exchange)
{
    Page page;
    text_init(&page.text, 4u << 20);
    char name[256];
    add_label_value(name, sizeof name, engine->served_name);
    (void)str_format(page.labels, sizeof page.labels, "engine_type=\"unified\",model_name=\"%s\"",
                     name);
    (void)str_format(page.rank_labels, sizeof page.rank_labels,
                     "%s,moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"", page.labels);
    CoreStats stats;
    engine_stats(engine, &stats);
    add_gauges(engine, &page, &stats);
    add_counters(engine, &page, &stats);
    add_histogram(&page, "time_to_first_token_seconds", &engine->ttft, "Time to first token.");
    add_histogram(&page, "inter_token_latency_seconds", &engine->itl, "Time between tokens.");
    add_histogram(&page, "e2e_request_latency_seconds", &engine->e2e, "Time of a request.");
    http_reply(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", text_str(&page.text),
               NULL);
    text_free(&page.text);
}
