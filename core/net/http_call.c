/* One HTTP call: its request, its deadlines, its one end, whoever carries it. Every bound of time
 * and size is ours, because curl reports all its time-outs as one code and knows no silence. One uv
 * timer a call carries the nearest deadline and is armed again only when it fires, so that a stream
 * of many small pieces never touches the timer heap. */
#include "core/net/http_local.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/net/http_plain.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    HTTP_HEADERS_MAX = 64 << 10,
    HTTP_CALLS_MAX = 16384
};

void http_call_saw_bytes(HttpCall *call)
{
    call->last_ms = uv_now(call->client->loop);
    if (!call->first_us) {
        call->first_us = clock_mono_us();
    }
}

static double retry_after(const HttpCall *call)
{
    if (http_call_status(call) < 300) {
        return -1.0; /* nothing to come back for: the many replies that are well are not searched */
    }
    Str value = str_trim(http_call_header(call, "Retry-After"));
    double seconds = 0;
    if (value.n == 0 || value.n > 64) {
        return -1.0;
    }
    if (str_to_double(value, &seconds)) {
        return seconds >= 0 ? seconds : -1.0;
    }
    char date[65];
    memcpy(date, value.p, value.n);
    date[value.n] = '\0';
    time_t at = curl_getdate(date, NULL);
    if (at < 0) {
        return -1.0;
    }
    seconds = (double)at - (double)clock_wall_us() / 1e6;
    return seconds > 0 ? seconds : 0.0;
}

/* ---- end of a call ------------------------------------------------------------------------ */

static void end_words(const HttpCall *call, HttpEnd end, HttpResult *result)
{
    const HttpRequestSpec *spec = &call->spec;
    switch (end) {
    case HTTP_END_OK:
        break;
    case HTTP_END_TIMEOUT_CONNECT:
        (void)str_format(result->error, sizeof result->error, "no connection within %lld ms",
                         (long long)spec->connect_ms);
        break;
    case HTTP_END_TIMEOUT_SILENT:
        (void)str_format(result->error, sizeof result->error, "no byte for %lld ms",
                         (long long)spec->silence_ms);
        break;
    case HTTP_END_TIMEOUT_TOTAL:
        (void)str_format(result->error, sizeof result->error, "not finished within %lld ms",
                         (long long)spec->total_ms);
        break;
    case HTTP_END_TOO_LARGE:
        (void)str_format(result->error, sizeof result->error,
                         "reply over the bound of %zu body bytes or %d header bytes",
                         spec->max_body, HTTP_HEADERS_MAX);
        break;
    case HTTP_END_CANCELLED:
        (void)str_format(result->error, sizeof result->error, "cancelled");
        break;
    case HTTP_END_REFUSED:
    case HTTP_END_RESET:
    case HTTP_END_MALFORMED:
    case HTTP_END_NAME:
    case HTTP_END_TLS:
        (void)str_format(result->error, sizeof result->error, "%s",
                         call->words[0] ? call->words : "connection closed before the reply");
        break;
    }
}

static void on_call_closed(uv_handle_t *handle)
{
    HttpCall *call = handle->data;
    HttpClient *client = call->client;
    free(call);
    http_client_handle_gone(client);
}

static void unlink_call(HttpCall *call)
{
    HttpClient *client = call->client;
    if (call->prev) {
        call->prev->next = call->next;
    } else {
        client->calls = call->next;
    }
    if (call->next) {
        call->next->prev = call->prev;
    }
    client->call_count--;
    for (int q = 0; q < 2; q++) { /* the queues are short: what one turn put there */
        HttpCall **at = q ? &client->ending : &client->starting;
        while (*at && *at != call) {
            at = &(*at)->queue_next;
        }
        if (*at) {
            *at = call->queue_next;
        }
    }
}

/* Frees what belongs to curl, tells the user, closes the timer (which frees the call). */
void http_call_finish(HttpCall *call, HttpEnd end)
{
    assert(!call->done);
    HttpClient *client = call->client;
    call->done = true;
    HttpResult result = {.end = end, .status = http_call_status(call)};
    long connects = call->fresh ? 1 : 0;
    if (call->easy) {
        curl_easy_getinfo(call->easy, CURLINFO_NUM_CONNECTS, &connects);
    }
    result.fresh = connects > 0;
    if (call->added) {
        curl_multi_remove_handle(client->multi, call->easy);
    }
    http_plain_release(call);
    int64_t now_us = clock_mono_us();
    result.body = text_str(&call->collected);
    result.headers = text_str(&call->headers);
    result.retry_after_s = retry_after(call);
    result.connect_us = call->connect_us ? call->connect_us - call->start_us : 0;
    result.first_byte_us = call->first_us ? call->first_us - call->start_us : 0;
    result.total_us = now_us - call->start_us;
    result.body_bytes = call->body_bytes;
    end_words(call, end, &result);
    unlink_call(call);
    http_client_enter(client);
    call->spec.on_done(call, &result, call->spec.user);
    client->depth--; /* a free from inside takes effect when the outermost turn ends */
    if (call->easy) {
        http_curl_release(client, call->easy);
    }
    curl_slist_free_all(call->header_lines);
    text_free(&call->collected);
    text_free(&call->headers);
    free(call->url);
    free(call->body);
    uv_close((uv_handle_t *)&call->timer, on_call_closed);
}

/* ---- deadlines ---------------------------------------------------------------------------- */

static void on_call_timer(uv_timer_t *timer);

/* Milliseconds to the nearest bound, or -1 for none; 0 and *end when one has passed. */
static int64_t call_deadline(const HttpCall *call, uint64_t now_ms, HttpEnd *end)
{
    const HttpRequestSpec *spec = &call->spec;
    const int64_t age = (int64_t)(now_ms - call->start_ms);
    const int64_t quiet = (int64_t)(now_ms - call->last_ms);
    const struct { int64_t bound, at; bool active; HttpEnd end; } bounds[] = {
        {spec->total_ms, age, true, HTTP_END_TIMEOUT_TOTAL},
        {spec->connect_ms, age, !call->connected, HTTP_END_TIMEOUT_CONNECT},
        {spec->silence_ms, quiet, call->connected, HTTP_END_TIMEOUT_SILENT},
    };
    int64_t wait = -1;
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        if (bounds[i].bound < 0 || !bounds[i].active) {
            continue;
        }
        int64_t left = bounds[i].bound - bounds[i].at;
        if (left <= 0) {
            *end = bounds[i].end;
            return 0;
        }
        if (wait < 0 || left < wait) {
            wait = left;
        }
    }
    return wait;
}

static void arm_timer(HttpCall *call, int64_t wait_ms)
{
    /* While connecting, look again soon: the silence bound starts with the connection, and
     * curl's callback that tells of it must not touch the timer heap for every call. */
    const int64_t silence = call->spec.silence_ms;
    if (!call->connected && silence >= 0 && (wait_ms < 0 || silence < wait_ms)) {
        wait_ms = silence > 0 ? silence : 1;
    }
    if (wait_ms >= 0) {
        uv_timer_start(&call->timer, on_call_timer, (uint64_t)wait_ms, 0);
    }
}

static void on_call_timer(uv_timer_t *timer)
{
    HttpCall *call = timer->data;
    HttpClient *client = call->client;
    if (call->done) {
        return;
    }
    curl_off_t uploaded = 0;
    if (call->added) {
        curl_easy_getinfo(call->easy, CURLINFO_SIZE_UPLOAD_T, &uploaded);
    }
    if (uploaded != call->uploaded) { /* bytes that leave break the silence too */
        call->uploaded = uploaded;
        call->last_ms = uv_now(client->loop);
    }
    HttpEnd end = HTTP_END_OK;
    int64_t wait = call_deadline(call, uv_now(client->loop), &end);
    if (end == HTTP_END_OK) {
        arm_timer(call, wait);
        return;
    }
    http_client_enter(client);
    http_call_finish(call, end);
    http_client_leave(client);
}

/* ---- start of a call ---------------------------------------------------------------------- */

bool http_clean_line(const char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7F) {
            return false;
        }
    }
    return true;
}

static Err add_header_line(HttpCall *call, const char *line, Fault *fault)
{
    if (!http_clean_line(line)) {
        return fault_set(fault, ERR_ARG, "remove control characters from the header or token",
                         "a header line for %s holds a control character", call->url);
    }
    struct curl_slist *more = curl_slist_append(call->header_lines, line);
    if (!more) {
        return fault_set(fault, ERR_MEMORY, NULL, "no memory for a header line");
    }
    call->header_lines = more;
    return ERR_OK;
}

/* What curl would add of its own is taken out by a name without a value. */
static Err build_headers(HttpCall *call, const HttpRequestSpec *spec, bool plain, Fault *fault)
{
    Err err = plain ? ERR_OK : add_header_line(call, "Expect:", fault);
    if (!err && spec->content_type) {
        char *line = xasprintf("Content-Type: %s", spec->content_type);
        err = add_header_line(call, line, fault);
        free(line);
    } else if (!err && spec->body.n > 0) {
        err = add_header_line(call, "Content-Type: application/json", fault);
    } else if (!err && !plain) {
        err = add_header_line(call, "Content-Type:", fault);
    }
    if (!err && spec->bearer) {
        char *line = xasprintf("Authorization: Bearer %s", spec->bearer);
        err = add_header_line(call, line, fault);
        free(line);
    }
    for (const char *const *line = spec->headers; !err && line && *line; line++) {
        err = add_header_line(call, *line, fault);
    }
    return err;
}

void http_calls_run_queued(uv_timer_t *timer)
{
    HttpClient *client = timer->data;
    http_client_enter(client);
    while (client->starting && !client->gone) {
        HttpCall *call = client->starting;
        client->starting = call->queue_next;
        if (!call->queued_end) {
            http_curl_add(call);
        }
    }
    while (client->ending && !client->gone) {
        HttpCall *call = client->ending;
        http_call_finish(call, call->forced != HTTP_END_OK ? call->forced : HTTP_END_CANCELLED);
    }
    http_client_leave(client);
}

static void link_call(HttpClient *client, HttpCall *call)
{
    call->next = client->calls;
    if (client->calls) {
        client->calls->prev = call;
    }
    client->calls = call;
    client->call_count++;
    client->handles++;
    uv_timer_init(client->loop, &call->timer);
    call->timer.data = call;
}

static void take_spec(HttpClient *client, HttpCall *call, const HttpRequestSpec *spec)
{
    const HttpClientConfig *config = &client->config;
    call->client = client;
    call->url = xstrdup(spec->url);
    call->spec = *spec;
    call->spec.url = call->url;
    call->spec.connect_ms = spec->connect_ms ? spec->connect_ms : config->connect_ms;
    call->spec.silence_ms = spec->silence_ms ? spec->silence_ms : config->silence_ms;
    call->spec.total_ms = spec->total_ms ? spec->total_ms : config->total_ms;
    call->spec.max_body = spec->max_body ? spec->max_body : config->max_body;
    text_init(&call->collected, call->spec.max_body);
    text_init(&call->headers, HTTP_HEADERS_MAX);
}

static Err check_start(const HttpClient *client, Fault *fault)
{
    if (client->freeing) {
        return fault_set(fault, ERR_STATE, NULL, "the HTTP client is closing");
    }
    if (client->call_count >= HTTP_CALLS_MAX) {
        return fault_set(fault, ERR_LIMIT, "lower the concurrency",
                         "%d HTTP calls are in flight already", HTTP_CALLS_MAX);
    }
    return ERR_OK;
}

Err http_start(HttpClient *client, const HttpRequestSpec *spec, HttpCall **out, Fault *fault)
{
    HttpPlainTarget target;
    bool loopback = false;
    if (out) {
        *out = NULL;
    }
    Err err = check_start(client, fault);
    if (err) {
        return err;
    }
    const bool plain = http_plain_takes(spec, &target);
    err = plain ? ERR_OK : http_curl_check_url(spec->url, &loopback, fault);
    if (err) {
        return err;
    }
    HttpCall *call = xcalloc(1, sizeof *call);
    take_spec(client, call, spec);
    err = build_headers(call, spec, plain, fault);
    if (!err && !plain) {
        err = http_curl_take(client, call, loopback, fault);
    }
    if (err) {
        curl_slist_free_all(call->header_lines);
        free(call->url);
        free(call);
        return err;
    }
    link_call(client, call);
    uv_update_time(client->loop);
    call->start_us = clock_mono_us();
    call->start_ms = call->last_ms = uv_now(client->loop);
    HttpEnd none = HTTP_END_OK;
    arm_timer(call, call_deadline(call, call->start_ms, &none));
    if (plain) {
        http_plain_start(call, &target);
    } else {
        http_curl_start(client, call);
    }
    call->spec.body = (Str){NULL, 0}; /* the caller's */
    if (out) {
        *out = call;
    }
    return ERR_OK;
}

void http_call_cancel(HttpCall *call)
{
    HttpClient *client = call->client;
    if (call->done || call->queued_end) {
        return;
    }
    call->queued_end = true;
    for (HttpCall **at = &client->starting; *at; at = &(*at)->queue_next) {
        if (*at == call) { /* not with curl yet */
            *at = call->queue_next;
            break;
        }
    }
    call->queue_next = client->ending;
    client->ending = call;
    if (!client->gone) {
        uv_timer_start(&client->queue_timer, http_calls_run_queued, 0, 0);
    }
}

int http_call_status(const HttpCall *call)
{
    if (!call->easy) {
        return call->status;
    }
    long status = 0;
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int)status;
}

Str http_call_header(const HttpCall *call, const char *name)
{
    Str rest = text_str(&call->headers);
    Str wanted = str_from(name);
    Str found = {NULL, 0};
    Str line;
    while (str_split(&rest, '\n', &line)) {
        if (line.n > wanted.n && line.p[wanted.n] == ':'
            && str_equal_nocase(str_slice(line, 0, wanted.n), wanted)) {
            found = str_trim(str_slice(line, wanted.n + 1, line.n));
        }
    }
    return found;
}
