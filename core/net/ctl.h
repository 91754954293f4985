/* Control socket: newline-delimited JSON over a Unix socket (0600) with peer credentials.
 * One request object a line, one reply object a line, in order. Server on a libuv loop; client
 * blocking with a bound (CLI) or on file descriptor (console). */
#ifndef ROLLTOP_NET_CTL_H
#define ROLLTOP_NET_CTL_H

#include "core/base/json.h"

#include <sys/types.h>
#include <uv.h>

enum { CTL_LINE_MAX = 1 << 20, CTL_CLIENTS_MAX = 64 };

typedef struct CtlServer CtlServer;
typedef struct CtlRequest CtlRequest;

typedef struct CtlPeer {
    uid_t uid;
    pid_t pid;
    char user[64]; /* login name, or the uid as text */
} CtlPeer;

/* The handler answers each request exactly once, now or later, with ctl_reply. Peers of another
 * uid than ours (and not root) are refused before this is called. */
typedef void (*CtlHandler)(CtlRequest *request, const cJSON *body, const CtlPeer *peer,
                           void *user);

/* A stale socket file (nobody listens) is replaced; a live one is ERR_EXISTS. ERR_IO: no such
 * folder, or somebody had its lock for five seconds, which this waits at most. */
Err ctl_server_new(uv_loop_t *loop, const char *path, CtlHandler handler, void *user,
                   CtlServer **out, Fault *fault);
void ctl_server_free(CtlServer *server); /* removes the socket file */
/* Removes a socket file that nobody listens on. One that is just being made stays: both hold the
 * folder's lock. */
void ctl_sweep(const char *path);
void ctl_reply(CtlRequest *request, const Text *json_object);

typedef struct CtlClient CtlClient;
Err ctl_connect(const char *path, int64_t timeout_ms, CtlClient **out, Fault *fault);
void ctl_client_free(CtlClient *client);
/* Sends one object and waits for its reply. *reply owned by the caller. */
Err ctl_call(CtlClient *client, Str json_object, int64_t timeout_ms, cJSON **reply, Fault *fault);
/* Non-blocking halves for a poll loop. ctl_poll_reply gives ERR_TIMEOUT while nothing is whole. */
int ctl_client_fd(const CtlClient *client);
Err ctl_send(CtlClient *client, Str json_object, Fault *fault);
Err ctl_poll_reply(CtlClient *client, cJSON **reply, Fault *fault);

#endif
