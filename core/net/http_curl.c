/* What is libcurl's of a call: its handle with all options, the reply as curl brings it, and its
 * result codes as ends of ours. */
#include "core/net/http_local.h"

#include "core/base/clock.h"
#include "core/base/mem.h"

#include <string.h>

enum {
    HTTP_URL_MAX = 8 << 10,
    HTTP_POOL_AGE_S = 20 /* older idle connections are not reused */
};

/* ---- the reply ---------------------------------------------------------------------------- */

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

/* ---- the request -------------------------------------------------------------------------- */

/* Scheme, host and length are checked; *loopback tells whether a proxy must be kept out. */
Err http_curl_check_url(const char *url, bool *loopback, Fault *fault)
{
    const char *hint = "write it as http://HOST:PORT/PATH";
    if (strlen(url) > HTTP_URL_MAX || !http_clean_line(url)) {
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

void http_curl_add(HttpCall *call)
{
    HttpClient *client = call->client;
    if (curl_multi_add_handle(client->multi, call->easy) == CURLM_OK) {
        call->added = true;
    } else {
        call->forced = HTTP_END_RESET;
        http_call_cancel(call);
    }
}

Err http_curl_take(HttpClient *client, HttpCall *call, bool loopback, Fault *fault)
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

void http_curl_start(HttpClient *client, HttpCall *call)
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
        http_curl_add(call);
    }
}

void http_curl_release(HttpClient *client, CURL *easy)
{
    if (client->spare_count < HTTP_SPARE_HANDLES && !client->gone) {
        curl_easy_reset(easy);
        client->spare[client->spare_count++] = easy;
    } else {
        curl_easy_cleanup(easy);
    }
}
