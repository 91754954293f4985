/* HTTP client on a libuv loop: curl's multi interface, which only this module calls, and plain
 * sockets for what does not need it (http_plain.h): 4 KiB a stream, not 79.
 *
 * Every call has bounds of time (connect, silence, total) and size (headers, body) and ends in
 * exactly one `done`. No redirects are followed, no compression is asked for, no proxy from the
 * environment is used for loopback. A server's certificate has to fit its name and come from an
 * authority of the system, or of the file that SSL_CERT_FILE names. Connections are pooled per
 * host; a call that dies on a stale pooled connection before any byte came is sent once more only
 * if `idempotent`. Not thread-safe: one client belongs to one loop. Expected: up to 1,024 engines,
 * 4,096 calls in flight. */
#ifndef ROLLTOP_NET_HTTP_CLIENT_H
#define ROLLTOP_NET_HTTP_CLIENT_H

#include "core/base/str.h"

#include <uv.h>

typedef struct HttpClient HttpClient;
typedef struct HttpCall HttpCall;

typedef enum HttpEnd {
    HTTP_END_OK,         /* a whole reply came, whatever its status */
    HTTP_END_REFUSED,    /* nobody listens, or no route */
    HTTP_END_RESET,      /* closed or reset before the reply was whole */
    HTTP_END_TIMEOUT_CONNECT,
    HTTP_END_TIMEOUT_SILENT, /* no byte for silence_ms */
    HTTP_END_TIMEOUT_TOTAL,
    HTTP_END_TOO_LARGE,  /* header or body over the bound */
    HTTP_END_MALFORMED,  /* not HTTP, or framing broken */
    HTTP_END_NAME,       /* host name not resolved */
    HTTP_END_TLS,
    HTTP_END_CANCELLED   /* by http_call_cancel */
} HttpEnd;
const char *http_end_name(HttpEnd end);

typedef struct HttpResult {
    HttpEnd end;
    int status;           /* 0 when no status line came */
    Str body;             /* whole body unless on_body took it; valid during the callback */
    Str headers;          /* raw header block, valid during the callback */
    double retry_after_s; /* from Retry-After, < 0 when absent */
    int64_t connect_us, first_byte_us, total_us; /* from the start; 0 while not reached */
    uint64_t body_bytes;
    bool fresh;           /* a connection was opened for it; false: a pooled one carried it */
    char error[128];      /* words for end != OK */
} HttpResult;

enum { HTTP_TOUCHED = 4 };

typedef struct HttpRequestSpec {
    const char *method;      /* "GET", "POST" … */
    const char *url;         /* copied */
    Str body;                /* copied; JSON unless content_type is set */
    const char *content_type; /* NULL: application/json when there is a body */
    const char *bearer;      /* token for Authorization, NULL none; never logged */
    const char *const *headers; /* extra "Name: value" lines, NULL-terminated; may be NULL */
    int64_t connect_ms, silence_ms, total_ms; /* 0: client's default; < 0: none */
    size_t max_body;         /* 0: client's default */
    bool idempotent;
    /* The final reply's headers are whole (status below 200 is passed over). May be NULL. */
    void (*on_head)(HttpCall *call, int status, void *user);
    /* Stream: called with each piece as it comes; return false to cancel. NULL: collect. */
    bool (*on_body)(HttpCall *call, Str piece, void *user);
    void (*on_done)(HttpCall *call, const HttpResult *result, void *user); /* required, once */
    void *user;
    /* What on_body touches of the user's memory with each piece, NULL where there is less: with
     * thousands of streams it is fetched while others are read. Valid until on_done returns. */
    const void *touched[HTTP_TOUCHED];
} HttpRequestSpec;

typedef struct HttpClientConfig {
    int64_t connect_ms, silence_ms, total_ms; /* defaults of calls */
    size_t max_body;
    int max_connections_per_host; /* 0: unlimited */
    bool at_once; /* replies are taken as they come; else busy streams wait for more bytes */
} HttpClientConfig;

Err http_client_new(uv_loop_t *loop, const HttpClientConfig *config, HttpClient **out,
                    Fault *fault);
/* Cancels every call (their on_done runs with CANCELLED) and frees once the loop has closed the
 * handles; the loop must run once more. */
void http_client_free(HttpClient *client);
/* Starts a call. On success *out (may be NULL) is valid until on_done returns. on_done is never
 * called from inside http_start. */
Err http_start(HttpClient *client, const HttpRequestSpec *spec, HttpCall **out, Fault *fault);
void http_call_cancel(HttpCall *call); /* on_done runs later with CANCELLED */
int http_call_status(const HttpCall *call); /* once headers came, else 0 */
Str http_call_header(const HttpCall *call, const char *name); /* last one of that name */

#endif
