/* What the frontend says of itself: health, models, metrics (dynamo-api 2, 3, 4). */
#include "core/serve/frontend_pages.h"

#include "core/base/clock.h"
#include "core/serve/frontend_local.h"

#include <stdlib.h>

static const double DURATIONS[FRONTEND_DURATION_BUCKETS] = {0, 2, 4, 8, 16, 32, 64, 130, 260, 510};

static const struct { const char *status, *error_type; } OUTCOMES[OUTCOME_COUNT] = {
    [OUTCOME_SUCCESS] = {"success", ""},
    [OUTCOME_VALIDATION] = {"error", "validation"},
    [OUTCOME_NOT_FOUND] = {"error", "not_found"},
    [OUTCOME_UNAVAILABLE] = {"error", "unavailable"},
    [OUTCOME_CANCELLED] = {"error", "cancelled"},
    [OUTCOME_INTERNAL] = {"error", "internal"},
    [OUTCOME_NOT_IMPLEMENTED] = {"error", "not_implemented"},
};

void frontend_ended(Frontend *frontend, Outcome outcome, int64_t start_us)
{
    double seconds = (double)(clock_mono_us() - start_us) / 1e6;
    frontend->ended[outcome]++;
    int i = 0;
    while (i < FRONTEND_DURATION_BUCKETS && seconds > DURATIONS[i]) {
        i++;
    }
    frontend->duration_counts[i]++;
    frontend->duration_sum += seconds;
}

void route_live(Frontend *frontend, HttpExchange *exchange)
{
    http_reply(exchange, frontend->draining ? 503 : 200, "application/json",
               frontend->draining
                   ? STR("{\"status\":\"shutting_down\",\"message\":\"Service is shutting down\"}")
                   : STR("{\"status\":\"live\",\"message\":\"Service is live\"}"), NULL);
}

void route_frontend_health(Frontend *frontend, HttpExchange *exchange)
{
    if (frontend->draining) {
        http_reply(exchange, 503, "application/json",
                   STR("{\"status\":\"not_ready\",\"stage\":\"draining\",\"message\":\"Service is "
                       "not ready\"}"), NULL);
        return;
    }
    Text body;
    text_init(&body, 8u << 20);
    JsonOut json;
    char text[512];
    json_begin(&json, &body);
    json_object_begin(&json);
    json_member_string(&json, "status", "healthy");
    json_key(&json, "endpoints");
    json_array_begin(&json);
    if (frontend->worker_count > 0) {
        (void)str_format(text, sizeof text, "dyn://%s.backend.generate", frontend->space);
        json_put_string(&json, text);
    }
    json_array_end(&json);
    json_key(&json, "instances");
    json_array_begin(&json);
    for (int i = 0; i < frontend->worker_count; i++) { /* set-aside ones too, as upstream */
        const Worker *worker = frontend->workers[i];
        json_object_begin(&json);
        json_member_string(&json, "component", "backend");
        json_member_string(&json, "endpoint", "generate");
        json_member_string(&json, "namespace", frontend->space);
        json_key(&json, "instance_id");
        json_put_u64(&json, worker->instance_id);
        json_key(&json, "transport");
        json_object_begin(&json);
        (void)str_format(text, sizeof text, "%s/%llx/%s/backend/generate", worker->address,
                         (unsigned long long)worker->instance_id, frontend->space);
        json_member_string(&json, "tcp", text);
        json_object_end(&json);
        json_object_end(&json);
    }
    json_array_end(&json);
    reply_send(exchange, 200, &body, &json);
}

void route_frontend_models(Frontend *frontend, HttpExchange *exchange)
{
    if (frontend->draining) {
        reply_flat(exchange, 503, "Service Unavailable", "Service is not ready");
        return;
    }
    Text body;
    JsonOut json;
    reply_open(&body, &json, 65536);
    json_member_string(&json, "object", "list");
    json_key(&json, "data");
    json_array_begin(&json);
    if (workers_servable(frontend) > 0) {
        json_object_begin(&json);
        json_member_string(&json, "id", frontend->model);
        json_member_string(&json, "object", "model");
        json_member_i64(&json, "created", clock_wall_us() / 1000000);
        json_member_string(&json, "owned_by", "nvidia");
        json_member_i64(&json, "context_window", 0);
        json_object_end(&json);
    }
    json_array_end(&json);
    reply_send(exchange, 200, &body, &json);
}

void route_frontend_ready(Frontend *frontend, HttpExchange *exchange)
{
    int count = workers_servable(frontend);
    bool ready = count > 0;
    if (frontend->draining) {
        reply_flat(exchange, 503, "Service Unavailable", "Service is not ready");
        return;
    }
    Text body;
    JsonOut json;
    reply_open(&body, &json, 65536);
    json_member_string(&json, "model", frontend->model);
    json_member_bool(&json, "ready", ready);
    if (!ready) {
        json_member_string(&json, "reason", "no namespace has all required worker types live");
    }
    json_key(&json, "namespaces");
    json_object_begin(&json);
    json_key(&json, frontend->space);
    json_object_begin(&json);
    json_member_bool(&json, "ready", ready);
    if (!ready) {
        json_member_string(&json, "reason", "missing worker types: aggregated");
    }
    json_key(&json, "worker_types");
    char text[96];
    (void)str_format(text, sizeof text, "{\"aggregated\":{\"workers\":%d,\"needs\":[]}}", count);
    json_put_raw(&json, str_from(text));
    json_key(&json, "present");
    json_put_raw(&json, ready ? STR("[\"aggregated\"]") : STR("[]"));
    json_key(&json, "missing_worker_types");
    json_put_raw(&json, ready ? STR("[]") : STR("[\"aggregated\"]"));
    json_object_end(&json);
    json_object_end(&json);
    reply_send(exchange, ready ? 200 : 503, &body, &json);
}

static void add_metric(Text *page, const char *name, const char *type, const char *labels,
                       uint64_t v)
{
    text_addf(page, "# TYPE dynamo_frontend_%s %s\ndynamo_frontend_%s%s %llu\n", name, type, name,
              labels, (unsigned long long)v);
}

static void add_durations(const Frontend *frontend, Text *page)
{
    uint64_t sum = 0;
    text_add_c(page, "# TYPE dynamo_frontend_request_duration_seconds histogram\n");
    for (int i = 0; i <= FRONTEND_DURATION_BUCKETS; i++) {
        char bound[32] = "+Inf";
        if (i < FRONTEND_DURATION_BUCKETS) {
            (void)str_format(bound, sizeof bound, "%g", DURATIONS[i]);
        }
        sum += frontend->duration_counts[i];
        text_addf(page, "dynamo_frontend_request_duration_seconds_bucket{model=\"%s\",le=\"%s\"} "
                  "%llu\n", frontend->model, bound, (unsigned long long)sum);
    }
    text_addf(page, "dynamo_frontend_request_duration_seconds_sum{model=\"%s\"} %.9g\n"
              "dynamo_frontend_request_duration_seconds_count{model=\"%s\"} %llu\n",
              frontend->model, frontend->duration_sum, frontend->model, (unsigned long long)sum);
}

/* A labelled family has no series before its first event, as upstream. */
void route_frontend_metrics(Frontend *frontend, HttpExchange *exchange)
{
    Text page;
    text_init(&page, 1u << 20);
    char model[512];
    char endpoint[640];
    (void)str_format(model, sizeof model, "{model=\"%s\"}", frontend->model);
    (void)str_format(endpoint, sizeof endpoint, "{endpoint=\"generate\",model=\"%s\","
                     "request_type=\"stream\"}", frontend->model);
    add_metric(&page, "active_requests", "gauge", model, (uint64_t)frontend->active);
    add_metric(&page, "inflight_requests", "gauge", model, (uint64_t)frontend->active);
    add_metric(&page, "disconnected_clients", "gauge", "", frontend->disconnected);
    add_metric(&page, "model_ready", "gauge", model, workers_servable(frontend) > 0);
    add_metric(&page, "stream_events_total", "counter", model, frontend->events);
    if (frontend->started > 0) {
        add_metric(&page, "requests_started_total", "counter", endpoint, frontend->started);
    }
    if (frontend->cancelled > 0) {
        (void)str_format(endpoint, sizeof endpoint, "{endpoint=\"generate\",model=\"%s\","
                         "request_type=\"streaming\"}", frontend->model);
        add_metric(&page, "model_cancellation_total", "counter", endpoint, frontend->cancelled);
    }
    if (frontend->rejected > 0) {
        (void)str_format(endpoint, sizeof endpoint, "{endpoint=\"generate\",model=\"%s\"}",
                         frontend->model);
        add_metric(&page, "model_rejection_total", "counter", endpoint, frontend->rejected);
    }
    if (frontend->migrated > 0) {
        (void)str_format(endpoint, sizeof endpoint, "{migration_type=\"new_request\",model=\"%s\"}",
                         frontend->model);
        add_metric(&page, "model_migration_total", "counter", endpoint, frontend->migrated);
    }
    text_add_c(&page, "# TYPE dynamo_frontend_requests_total counter\n");
    for (int i = 0; i < OUTCOME_COUNT; i++) {
        if (frontend->ended[i] > 0) {
            text_addf(&page, "dynamo_frontend_requests_total{endpoint=\"generate\",error_type="
                      "\"%s\",model=\"%s\",request_type=\"stream\",status=\"%s\"} %llu\n",
                      OUTCOMES[i].error_type, frontend->model, OUTCOMES[i].status,
                      (unsigned long long)frontend->ended[i]);
        }
    }
    add_durations(frontend, &page);
    http_reply(exchange, 200, "text/plain; charset=utf-8", text_str(&page), NULL);
    text_free(&page);
}
