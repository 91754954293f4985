/* Private to the HTTP client: what http_client.c (curl's multi interface on libuv), http_call.c
 * (one call from start to end), http_curl.c (a call that curl carries) and http_plain.c (calls
 * without curl) share. */
#ifndef ROLLTOP_NET_HTTP_LOCAL_H
#define ROLLTOP_NET_HTTP_LOCAL_H

#include "core/net/http_client.h"

#include <curl/curl.h>

enum {
    HTTP_SPARE_HANDLES = 128,
    HTTP_PLAIN_BUCKET_BITS = 11, /* about one kept connection in each, of a thousand engines */
    HTTP_PLAIN_BUCKETS = 1 << HTTP_PLAIN_BUCKET_BITS
};

typedef struct HttpPlainConn HttpPlainConn; /* http_plain.c: a connection without curl */

/* What every piece of a stream touches stands together at the front: with thousands of streams each
 * line of it comes from memory. */
struct HttpCall {
    HttpPlainConn *plain;          /* while a plain call has a connection */
    uint64_t last_ms;              /* uv_now: bytes seen; cheap enough for every piece */
    int64_t first_us;
    uint64_t body_bytes;
    HttpEnd forced;                /* decided by us before curl saw an end; OK: none */
    int status;                    /* of the head, once that is whole */
    bool added, queued_end, done, connected;
    bool fresh;                    /* a plain one opened its connection */
    bool head_whole; /* the blank line behind the headers came; curl calls it a success if not */
    HttpClient *client;
    CURL *easy;                    /* NULL: plain */
    HttpRequestSpec spec;          /* pointers in it that we use later are our copies */
    HttpCall *prev, *next;         /* in client->calls */
    HttpCall *queue_next;          /* in client->starting or client->ending */
    struct curl_slist *header_lines;
    char *url, *body;
    uv_timer_t timer;
    int64_t start_us, connect_us;
    uint64_t start_ms;
    curl_off_t uploaded;
    Text collected, headers;
    int sends;                     /* times the request was put on a connection */
    char words[CURL_ERROR_SIZE];
};

struct HttpClient {
    uv_loop_t *loop;
    HttpClientConfig config;
    CURLM *multi;
    const char *ca_file; /* of the environment; NULL: the system's authorities */
    uv_timer_t curl_timer, queue_timer, gather_timer;
    uv_poll_t poll; /* of epoll_fd */
    int epoll_fd;   /* curl's sockets as fd * 2 + 1, plain connections as their address */
    int watched;    /* sockets in it that a call waits for */
    bool gathering;
    HttpCall *calls, *starting, *ending;
    CURL *spare[HTTP_SPARE_HANDLES];
    int spare_count, call_count;
    HttpPlainConn *kept[HTTP_PLAIN_BUCKETS], *swept;
    int kept_count;
    bool taking;       /* a batch of ready sockets is being worked through */
    char *read_buffer; /* of plain connections */
    int handles;  /* uv handles whose close callback has not run */
    int depth;    /* inside curl or a callback of the user */
    bool freeing, gone;
};

/* Around everything that may run curl or a callback of the user. leave() carries out a
 * http_client_free that came from inside. */
void http_client_enter(HttpClient *client);
void http_client_leave(HttpClient *client);
/* That many more sockets, or less, are waited for. */
void http_client_watched(HttpClient *client, int change);
/* A uv handle's close callback ran. */
void http_client_handle_gone(HttpClient *client);

void http_call_saw_bytes(HttpCall *call);
/* Tells the user, gives everything back; the call is freed when its timer has closed. */
void http_call_finish(HttpCall *call, HttpEnd end);
void http_calls_run_queued(uv_timer_t *timer);    /* starts and cancels from inside callbacks */
/* No control character, which would begin another line. */
bool http_clean_line(const char *s);

/* http_curl.c. Scheme, host and length are checked; *loopback tells whether a proxy must be kept
 * out. */
Err http_curl_check_url(const char *url, bool *loopback, Fault *fault);
/* Gives the call a handle with all options; its header lines are there. */
Err http_curl_take(HttpClient *client, HttpCall *call, bool loopback, Fault *fault);
/* Hands the call to curl: at once, or from the loop where curl may be running further up the
 * stack, since it must not be entered again. */
void http_curl_start(HttpClient *client, HttpCall *call);
void http_curl_add(HttpCall *call); /* curl is not running */
void http_curl_release(HttpClient *client, CURL *easy); /* kept for another call, or freed */
void http_calls_finish_ready(HttpClient *client); /* those that curl reports as done */

#endif
