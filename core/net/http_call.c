/* One HTTP call: its request, what curl brings of the reply, its deadlines, its one end. Every
 * bound of time and size is ours, because curl reports all its time-outs as one code and knows no
 * silence. One uv timer a call carries the nearest deadline and is armed again only when it
 * fires, so that a stream of many small pieces never touches the timer heap. */
#include "core/net/http_local.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/net/http_plain.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    HTTP_HEADERS_MAX = 64 << 10,
    HTTP_URL_MAX = 8 << 10,
    HTTP_CALLS_MAX = 16384,
    HTTP_POOL_AGE_S = 20 /* older idle connections are not reused */
};

/* ---- what curl brings --------------------------------------------------------------------- */

void http_call_saw_bytes(HttpCall *call)
{
    call->last_ms = uv_now(call->client->loop);
    if (!call->first_us) {
        call->first_us = clock_mono_us();
    }
}

static size_t on_curl_header(char *bytes, size_t size, size_t count, void *user)
{
    HttpCall *call = user;
    size_t n = size * count;
    http_call_saw_bytes(call);
    if (call->status >= 200) {
        return n; /* behind the head: a trailer */
    }
    if (n >= 5 && memcmp(bytes, "HTTP/", 5) == 0) {
        text_clear(&call->headers); /* an interim reply (100) came before */
        call->head_whole = false;
    } else if (n <= 2 && (bytes[0] == '\r' || bytes[0] == '\n')) {
        call->head_whole = true;
    }
    if (!text_add(&call->headers, bytes, n)) {
        call->forced = HTTP_END_TOO_LARGE;
        return 0;
    }
    call->status = call->head_whole ? http_call_status(call) : 0;
    if (call->status >= 200 && call->spec.on_head && !call->queued_end) {
        call->spec.on_head(call, call->status, call->spec.user);
    }
    return n;
}

static size_t on_curl_body(char *bytes, size_t size, size_t count, void *user)
{
    HttpCall *call = user;
    size_t n = size * count;
    http_call_saw_bytes(call);
    if (call->queued_end || call->forced != HTTP_END_OK) {
        return 0;
    }
    call->body_bytes += n;
    if (call->body_bytes > call->spec.max_body) {
        call->forced = HTTP_END_TOO_LARGE;
        return 0;
    }
    if (call->spec.on_body) {
        if (!call->spec.on_body(call, (Str){bytes, n}, call->spec.user)) {
            call->forced = HTTP_END_CANCELLED;
            return 0;
        }
        return n;
    }
    if (!text_add(&call->collected, bytes, n)) {
        call->forced = HTTP_END_TOO_LARGE;
        return 0;
    }
    return n;
}

/* curl calls this each time it is about to put the request on a connection. It would repeat any
 * request that died on a pooled connection; we allow that once, and only when it is harmless. */
static int on_curl_send(void *user, char *peer_ip, char *own_ip, int peer_port, int own_port)
{
    (void)peer_ip;
    (void)own_ip;
    (void)peer_port;
    (void)own_port;
    HttpCall *call = user;
    call->sends++;
    if (call->sends > (call->spec.idempotent ? 2 : 1)) {
        call->forced = HTTP_END_RESET;
        return CURL_PREREQFUNC_ABORT;
    }
    call->connected = true;
    call->last_ms = uv_now(call->client->loop);
    if (!call->connect_us) {
        call->connect_us = clock_mono_us();
    }
    return CURL_PREREQFUNC_OK;
}

static HttpEnd end_from_curl(const HttpCall *call, CURLcode code)
{
    if (call->forced != HTTP_END_OK) {
        return call->forced;
    }
    switch ((int)code) { /* some of curl's hundred codes; the rest is below */
    case CURLE_OK:
        return call->head_whole ? HTTP_END_OK : HTTP_END_RESET;
    case CURLE_COULDNT_CONNECT:
        return HTTP_END_REFUSED;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return HTTP_END_NAME;
    case CURLE_OPERATION_TIMEDOUT:
        return call->connected ? HTTP_END_TIMEOUT_TOTAL : HTTP_END_TIMEOUT_CONNECT;
    case CURLE_FILESIZE_EXCEEDED:
        return HTTP_END_TOO_LARGE;
    case CURLE_OUT_OF_MEMORY: /* how curl says that one header line passed its own bound */
        return HTTP_END_TOO_LARGE;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ENGINE_NOTFOUND:
    case CURLE_USE_SSL_FAILED:
        return HTTP_END_TLS;
    case CURLE_UNSUPPORTED_PROTOCOL: /* HTTP/0.9, which is to say no HTTP */
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_BAD_CONTENT_ENCODING:
        return HTTP_END_MALFORMED;
    }
    if (code == CURLE_RECV_ERROR && strstr(call->words, "chunk")) {
        return HTTP_END_MALFORMED;
    }
    return HTTP_END_RESET;
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

static void release_easy(HttpClient *client, CURL *easy)
{
    if (client->spare_count < HTTP_SPARE_HANDLES && !client->gone) {
        curl_easy_reset(easy);
        client->spare[client->spare_count++] = easy;
    } else {
        curl_easy_cleanup(easy);
    }
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
        release_easy(client, call->easy);
    }
    curl_slist_free_all(call->header_lines);
    text_free(&call->collected);
    text_free(&call->headers);
    free(call->url);
    free(call->body);
    uv_close((uv_handle_t *)&call->timer, on_call_closed);
}

void http_calls_finish_ready(HttpClient *client)
{
    CURLMsg *message = NULL;
    int left = 0;
    while (!client->gone && (message = curl_multi_info_read(client->multi, &left)) != NULL) {
        if (message->msg != CURLMSG_DONE) {
            continue;
        }
        char *user = NULL;
        CURLcode code = message->data.result; /* the message dies with remove_handle */
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &user);
        HttpCall *call = (HttpCall *)(void *)user;
        http_call_finish(call, end_from_curl(call, code));
    }
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

static bool clean_line(const char *s)
{
    for (; *s; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7F) {
            return false;
        }
    }
    return true;
}

/* Scheme, host and length are checked; *loopback tells whether a proxy must be kept out. */
static Err check_url(const char *url, bool *loopback, Fault *fault)
{
    const char *hint = "write it as http://HOST:PORT/PATH";
    if (strlen(url) > HTTP_URL_MAX || !clean_line(url)) {
        return fault_set(fault, ERR_ARG, hint, "URL is too long or holds a control character");
    }
    CURLU *parts = curl_url();
    char *host = NULL;
    char *scheme = NULL;
    char *user = NULL;
    Err err = ERR_OK;
    if (!parts || curl_url_set(parts, CURLUPART_URL, url, 0) != CURLUE_OK
        || curl_url_get(parts, CURLUPART_HOST, &host, 0) != CURLUE_OK
        || curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK) {
        err = fault_set(fault, ERR_ARG, hint, "\"%s\" is not a URL", url);
    } else if (curl_url_get(parts, CURLUPART_USER, &user, 0) == CURLUE_OK) {
        err = fault_set(fault, ERR_ARG, "put the token into the environment instead",
                        "URL of host %s carries credentials", host);
    } else if (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0) {
        err = fault_set(fault, ERR_ARG, hint, "\"%s\" is neither http nor https", url);
    } else {
        *loopback = strcmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0
                    || strcmp(host, "[::1]") == 0;
    }
    curl_free(host);
    curl_free(scheme);
    curl_free(user);
    curl_url_cleanup(parts);
    return err;
}

static Err add_header_line(HttpCall *call, const char *line, Fault *fault)
{
    if (!clean_line(line)) {
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

static void set_method(HttpCall *call, const char *method, size_t body_bytes)
{
    CURL *easy = call->easy;
    if (strcmp(method, "HEAD") == 0) {
        curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    } else if (strcmp(method, "GET") == 0 && body_bytes == 0) {
        curl_easy_setopt(easy, CURLOPT_HTTPGET, 1L);
    } else {
        if (body_bytes > 0 || strcmp(method, "POST") == 0 || strcmp(method, "PUT") == 0) {
            curl_easy_setopt(easy, CURLOPT_POST, 1L);
            curl_easy_setopt(easy, CURLOPT_POSTFIELDS, call->body ? call->body : "");
            curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body_bytes);
        }
        if (strcmp(method, "POST") != 0) {
            curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
        }
    }
}

static void set_options(HttpCall *call, const HttpRequestSpec *spec, bool loopback)
{
    CURL *easy = call->easy;
    set_method(call, spec->method, spec->body.n);
    curl_easy_setopt(easy, CURLOPT_URL, call->url);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, call);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, call->words);
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
    curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 1L);
    curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 65536L);
    curl_easy_setopt(easy, CURLOPT_MAXAGE_CONN, (long)HTTP_POOL_AGE_S);
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "rolltop/" ROLLTOP_VERSION);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, call->header_lines);
    if (loopback) {
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    }
    if (call->client->ca_file) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, call->client->ca_file);
    }
    /* Ours are the only time bounds: curl's own would all end in the same code. */
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, 24L * 3600 * 1000);
    curl_easy_setopt(easy, CURLOPT_MAXFILESIZE_LARGE, (curl_off_t)call->spec.max_body);
    curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L); /* a proxy's are no reply */
    curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_curl_header);
    curl_easy_setopt(easy, CURLOPT_HEADERDATA, call);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_curl_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, call);
    curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_curl_send);
    curl_easy_setopt(easy, CURLOPT_PREREQDATA, call);
}

static void add_to_curl(HttpCall *call)
{
    HttpClient *client = call->client;
    if (curl_multi_add_handle(client->multi, call->easy) == CURLM_OK) {
        call->added = true;
    } else {
        call->forced = HTTP_END_RESET;
        http_call_cancel(call);
    }
}

void http_calls_run_queued(uv_timer_t *timer)
{
    HttpClient *client = timer->data;
    http_client_enter(client);
    while (client->starting && !client->gone) {
        HttpCall *call = client->starting;
        client->starting = call->queue_next;
        if (!call->queued_end) {
            add_to_curl(call);
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

static Err take_easy(HttpClient *client, HttpCall *call, bool loopback, Fault *fault)
{
    const HttpRequestSpec *spec = &call->spec;
    call->easy = client->spare_count > 0 ? client->spare[--client->spare_count]
                                         : curl_easy_init();
    if (!call->easy) {
        return fault_set(fault, ERR_MEMORY, NULL, "libcurl gave no handle");
    }
    if (spec->body.n > 0) {
        call->body = xcalloc(1, spec->body.n);
        memcpy(call->body, spec->body.p, spec->body.n);
    }
    set_options(call, spec, loopback);
    return ERR_OK;
}

/* curl may be running further up the stack, and must not be entered again. */
static void give_to_curl(HttpClient *client, HttpCall *call)
{
    call->queue_next = NULL;
    if (client->depth > 0) {
        HttpCall **at = &client->starting;
        while (*at) {
            at = &(*at)->queue_next;
        }
        *at = call;
        uv_timer_start(&client->queue_timer, http_calls_run_queued, 0, 0);
    } else {
        add_to_curl(call);
    }
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
    err = plain ? ERR_OK : check_url(spec->url, &loopback, fault);
    if (err) {
        return err;
    }
    HttpCall *call = xcalloc(1, sizeof *call);
    take_spec(client, call, spec);
    err = build_headers(call, spec, plain, fault);
    if (!err && !plain) {
        err = take_easy(client, call, loopback, fault);
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
        give_to_curl(client, call);
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
