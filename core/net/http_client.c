/* HTTP client: curl's multi_socket interface, and plain sockets, on a libuv loop.
 *
 * curl does sockets, TLS, HTTP framing and the connection pool; the bounds of a call are ours
 * (http_call.c). Plain HTTP to a numeric address does without it (http_plain.c).
 *
 * All sockets stand in an epoll set of our own that libuv watches as one descriptor: one turn
 * takes everything that is ready, and while many streams are busy the next look waits a few
 * milliseconds, so that a wake-up and a read carry several tokens (tests/bench/sse_cpu.c).
 *
 * curl must not be re-entered from its own callbacks: starts and cancels that come from on_body
 * are queued and run from a timer of the client. */
#include "core/net/http_client.h"

#include "core/base/mem.h"
#include "core/net/http_local.h"
#include "core/net/http_plain.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    HTTP_BATCH = 512,      /* ready sockets taken at once */
    HTTP_GATHER_AT = 16,   /* that many at once: busy, let more bytes gather … */
    HTTP_GATHER_MS = 4,    /* … for this long */
    HTTP_CROWD_AT = 256,   /* that many: longer, so that a read brings two tokens or three */
    HTTP_CROWD_MS = 10,
    HTTP_POOL_MAX = 4096   /* idle connections kept over all hosts */
};

const char *http_end_name(HttpEnd end)
{
    switch (end) {
    case HTTP_END_OK: return "ok";
    case HTTP_END_REFUSED: return "refused";
    case HTTP_END_RESET: return "reset";
    case HTTP_END_TIMEOUT_CONNECT: return "timeout connect";
    case HTTP_END_TIMEOUT_SILENT: return "timeout silent";
    case HTTP_END_TIMEOUT_TOTAL: return "timeout total";
    case HTTP_END_TOO_LARGE: return "too large";
    case HTTP_END_MALFORMED: return "malformed";
    case HTTP_END_NAME: return "name not resolved";
    case HTTP_END_TLS: return "tls";
    case HTTP_END_CANCELLED: return "cancelled";
    }
    return "?";
}

/* ---- life of the client ------------------------------------------------------------------- */

static void client_release(HttpClient *client)
{
    if (client->gone && client->handles == 0 && client->depth == 0) {
        close(client->epoll_fd);
        free(client);
        curl_global_cleanup();
    }
}

static void client_close(HttpClient *client);

void http_client_handle_gone(HttpClient *client)
{
    client->handles--;
    client_release(client);
}

void http_client_enter(HttpClient *client)
{
    client->depth++;
}

void http_client_leave(HttpClient *client)
{
    client->depth--;
    if (client->depth == 0 && client->freeing && !client->gone) {
        client_close(client);
    }
}

static void run_curl(HttpClient *client, curl_socket_t fd, int events)
{
    if (client->gone) {
        return;
    }
    int running = 0;
    http_client_enter(client);
    curl_multi_socket_action(client->multi, fd, events, &running);
    http_calls_finish_ready(client);
    http_client_leave(client);
}

static bool is_plain(const struct epoll_event *event)
{
    return (event->data.u64 & 1) == 0;
}

/* With a thousand streams each one's memory has left the cache by its next turn: fetched while
 * others are read, a token costs 0.2 to 0.3 us above a bare reader, else 0.5 (bench_sse_cpu 1000
 * 300, in turns). A connection stays in memory while its batch is worked through. */
static void look_ahead(const struct epoll_event *events, int at, int n)
{
    for (int turns = 3; turns > 0; turns--) {
        if (at + turns < n && is_plain(&events[at + turns])) {
            http_plain_near(events[at + turns].data.ptr, turns);
        }
    }
}

/* Takes what is ready; gives how many sockets that were. A descriptor that was closed and opened
 * again within the batch is at worst asked once in vain. */
static int take_ready(HttpClient *client)
{
    struct epoll_event events[HTTP_BATCH];
    int n = epoll_wait(client->epoll_fd, events, HTTP_BATCH, 0);
    client->taking = true;
    for (int i = 0; i < n && !client->gone; i++) {
        look_ahead(events, i, n);
        if (is_plain(&events[i])) {
            http_client_enter(client);
            http_plain_ready(events[i].data.ptr, events[i].events);
            http_client_leave(client);
            continue;
        }
        int flags = events[i].events & (EPOLLIN | EPOLLHUP) ? CURL_CSELECT_IN : 0;
        flags |= events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0;
        flags |= events[i].events & EPOLLERR ? CURL_CSELECT_ERR : 0;
        run_curl(client, (curl_socket_t)(events[i].data.u64 >> 1), flags);
    }
    client->taking = false;
    http_plain_sweep(client);
    return n;
}

static void on_gathered(uv_timer_t *timer);

/* Starts a wait for more after that many were ready; false: they were too few for it. */
static bool gather(HttpClient *client, int ready)
{
    if (ready < HTTP_GATHER_AT || client->gone || client->config.at_once) {
        return false;
    }
    uint64_t wait = ready >= HTTP_CROWD_AT ? HTTP_CROWD_MS : HTTP_GATHER_MS;
    uv_timer_start(&client->gather_timer, on_gathered, wait, 0);
    return true;
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    HttpClient *client = poll->data;
    if (gather(client, take_ready(client))) {
        client->gathering = true;
        uv_poll_stop(&client->poll);
    }
}

/* Watches the set while there is something in it: an idle client does not keep the loop alive. */
static void watch_set(HttpClient *client)
{
    if (client->watched > 0 && !client->gathering) {
        uv_poll_start(&client->poll, UV_READABLE, on_ready);
    } else {
        uv_poll_stop(&client->poll);
    }
}

void http_client_watched(HttpClient *client, int change)
{
    client->watched += change;
    if (!client->gone && client->watched <= 1) {
        watch_set(client);
    }
}

static void on_gathered(uv_timer_t *timer)
{
    HttpClient *client = timer->data;
    if (gather(client, take_ready(client))) {
        return;
    }
    client->gathering = false;
    if (!client->gone) {
        watch_set(client);
    }
}

static int on_curl_socket(CURL *easy, curl_socket_t fd, int what, void *user, void *socket_user)
{
    (void)easy;
    HttpClient *client = user;
    struct epoll_event event = {.data.u64 = (uint64_t)fd << 1 | 1};
    if (what == CURL_POLL_REMOVE) {
        if (socket_user) {
            curl_multi_assign(client->multi, fd, NULL);
            epoll_ctl(client->epoll_fd, EPOLL_CTL_DEL, fd, &event);
            http_client_watched(client, -1);
        }
    } else {
        event.events |= what & CURL_POLL_IN ? EPOLLIN : 0u;
        event.events |= what & CURL_POLL_OUT ? EPOLLOUT : 0u;
        int verb = socket_user ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
        if (epoll_ctl(client->epoll_fd, verb, fd, &event) != 0) {
            return -1;
        }
        if (!socket_user) {
            http_client_watched(client, 1);
            curl_multi_assign(client->multi, fd, client);
        }
    }
    return 0;
}

static void on_curl_timer_due(uv_timer_t *timer)
{
    run_curl(timer->data, CURL_SOCKET_TIMEOUT, 0);
}

static int on_curl_timer(CURLM *multi, long timeout_ms, void *user)
{
    (void)multi;
    HttpClient *client = user;
    if (client->gone) {
        return 0;
    }
    if (timeout_ms < 0) {
        uv_timer_stop(&client->curl_timer);
    } else {
        uv_timer_start(&client->curl_timer, on_curl_timer_due, (uint64_t)timeout_ms, 0);
    }
    return 0;
}

Err http_client_new(uv_loop_t *loop, const HttpClientConfig *config, HttpClient **out,
                    Fault *fault)
{
    *out = NULL;
    const char *ca_file = getenv("SSL_CERT_FILE");
    if (ca_file && access(ca_file, R_OK) != 0) {
        return fault_set_sys(fault, ERR_IO, errno, "name a PEM file of certificates, or unset it",
                             "SSL_CERT_FILE: cannot read %s", ca_file);
    }
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        return fault_set(fault, ERR_UNSUPPORTED, NULL, "libcurl did not start");
    }
    CURLM *multi = curl_multi_init();
    if (!multi) {
        curl_global_cleanup();
        return fault_set(fault, ERR_MEMORY, NULL, "libcurl gave no multi handle");
    }
    HttpClient *client = xcalloc(1, sizeof *client);
    client->loop = loop;
    client->multi = multi;
    client->ca_file = ca_file;
    client->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (client->epoll_fd < 0 || uv_poll_init(loop, &client->poll, client->epoll_fd) != 0) {
        Err err = fault_set_sys(fault, ERR_IO, errno, "raise ulimit -n",
                                "no descriptor for the HTTP client");
        if (client->epoll_fd >= 0) {
            close(client->epoll_fd);
        }
        curl_multi_cleanup(multi);
        curl_global_cleanup();
        free(client);
        return err;
    }
    if (config) {
        client->config = *config;
    }
    client->config.connect_ms = client->config.connect_ms ? client->config.connect_ms : 3000;
    client->config.silence_ms = client->config.silence_ms ? client->config.silence_ms : 30000;
    client->config.total_ms = client->config.total_ms ? client->config.total_ms : 60000;
    client->config.max_body = client->config.max_body ? client->config.max_body : 16u << 20;
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_curl_socket);
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, client);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_curl_timer);
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, client);
    curl_multi_setopt(multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)HTTP_POOL_MAX);
    curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS,
                      (long)client->config.max_connections_per_host);
    uv_timer_init(loop, &client->curl_timer);
    uv_timer_init(loop, &client->queue_timer);
    uv_timer_init(loop, &client->gather_timer);
    client->curl_timer.data = client;
    client->queue_timer.data = client;
    client->gather_timer.data = client;
    client->poll.data = client;
    client->handles = 4;
    *out = client;
    return ERR_OK;
}

static void on_client_handle_closed(uv_handle_t *handle)
{
    http_client_handle_gone(handle->data);
}

static void client_close(HttpClient *client)
{
    client->gone = true;
    client->depth++;
    while (client->calls) {
        http_call_finish(client->calls, HTTP_END_CANCELLED);
    }
    client->depth--;
    for (int i = 0; i < client->spare_count; i++) {
        curl_easy_cleanup(client->spare[i]);
    }
    client->spare_count = 0;
    http_plain_pool_free(client);
    curl_multi_cleanup(client->multi);
    uv_close((uv_handle_t *)&client->curl_timer, on_client_handle_closed);
    uv_close((uv_handle_t *)&client->queue_timer, on_client_handle_closed);
    uv_close((uv_handle_t *)&client->gather_timer, on_client_handle_closed);
    uv_close((uv_handle_t *)&client->poll, on_client_handle_closed);
}

void http_client_free(HttpClient *client)
{
    if (!client || client->freeing) {
        return;
    }
    client->freeing = true;
    if (client->depth == 0) {
        client_close(client);
    }
}
