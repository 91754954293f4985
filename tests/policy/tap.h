/* A tap on the wires between a core and its engines: a process that passes bytes on between one
 * port of its own and one engine each, knows control calls by their first line, and kills a
 * process at a given call, before it is passed on or before its answer is. What is to be done
 * stands in memory shared with the test and with the trainer. An engine that does not listen is
 * refused here too, as it would be without the tap. */
#ifndef ROLLTOP_TESTS_TAP_H
#define ROLLTOP_TESTS_TAP_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TAP_ENGINES = 3, TAP_PAIRS = 256, TAP_BYTES = 65536, TAP_LOOK_MS = 50 };

typedef enum TapCall {
    TAP_NONE, TAP_PUBLISHED, /* the trainer has said so: the artifact is checked, the gate closes */
    TAP_PAUSE, TAP_FLUSH, TAP_UPDATE, TAP_CHECKSUM, TAP_CONTINUE, TAP_PULL, TAP_CALLS
} TapCall;

typedef struct TapOrder {
    _Atomic int call;   /* TapCall; TAP_NONE: pass everything on */
    int engine;         /* -1: any */
    int nth;            /* of an engine since its last flush; 0: any */
    int which;          /* 2: the second engine that comes to its nth */
    bool after;         /* the answer is on its way */
    int delay_us;
    pid_t victim;
    _Atomic int fired;
} TapOrder;

typedef struct TapPair {
    int fd[2]; /* client, engine; -1: free */
    int engine;
    TapCall call;
} TapPair;

typedef struct Tap {
    TapOrder *order;
    int port[TAP_ENGINES], engine_port[TAP_ENGINES], listener[TAP_ENGINES];
    TapPair pairs[TAP_PAIRS];
    int count[TAP_ENGINES][TAP_CALLS], met;
} Tap;

/* An address of this machine for this test alone: ports that are given back for a moment, since who
 * listened there is killed, are given to nobody else meanwhile. */
static inline const char *tap_home(void)
{
    static char home[16];
    if (!home[0]) { /* children keep what their parent asked for */
        (void)snprintf(home, sizeof home, "127.4.%d.%d", (int)getpid() / 250 % 250,
                       (int)getpid() % 250 + 1);
    }
    return home;
}

static inline int tap_socket(int *port, bool listens)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)*port)};
    socklen_t n = sizeof at;
    int one = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)inet_pton(AF_INET, tap_home(), &at.sin_addr);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    int bad = listens ? bind(fd, (struct sockaddr *)&at, n) || listen(fd, 64)
                      : connect(fd, (struct sockaddr *)&at, n);
    if (bad) {
        close(fd);
        return -1;
    }
    if (listens) {
        (void)getsockname(fd, (struct sockaddr *)&at, &n);
        *port = ntohs(at.sin_port);
    }
    return fd;
}

static inline void tap_fire(TapOrder *order)
{
    if (order->delay_us > 0) {
        struct timespec wait = {0, order->delay_us * 1000L};
        nanosleep(&wait, NULL);
    }
    order->call = TAP_NONE;
    order->fired = 1; /* said first: who fires may be a child that dies with the victim */
    if (order->victim > 0) {
        (void)kill(order->victim, SIGKILL);
    }
}

/* A call begins (or its answer comes): is it the one? */
static inline void tap_look(Tap *tap, const TapPair *pair, bool answer)
{
    TapOrder *order = tap->order;
    if ((int)pair->call != order->call || answer != order->after ||
        (order->engine >= 0 && order->engine != pair->engine) ||
        (order->nth > 0 && tap->count[pair->engine][pair->call] != order->nth)) {
        return;
    }
    if (++tap->met == order->which) {
        tap_fire(order);
    }
}

static inline TapCall tap_call_of(const char *bytes, size_t n)
{
    static const char *const lines[TAP_CALLS] = {
        [TAP_PAUSE] = "POST /pause_generation ", [TAP_FLUSH] = "POST /flush_cache ",
        [TAP_UPDATE] = "POST /update_weights_from_disk ",
        [TAP_CHECKSUM] = "POST /weights_checker ", [TAP_CONTINUE] = "POST /continue_generation ",
        [TAP_PULL] = "POST /pull_weights "};
    for (int call = TAP_PAUSE; call < TAP_CALLS; call++) {
        size_t length = strlen(lines[call]);
        if (n >= length && memcmp(bytes, lines[call], length) == 0) {
            return (TapCall)call;
        }
    }
    return TAP_NONE;
}

static inline void tap_note(Tap *tap, TapPair *pair, const char *bytes, size_t n)
{
    bool begins = n > 5 && (memcmp(bytes, "POST ", 5) == 0 || memcmp(bytes, "GET /", 5) == 0);
    if (!begins) {
        return;
    }
    pair->call = tap_call_of(bytes, n);
    if (pair->call == TAP_FLUSH) {
        tap->met = 0; /* the fleet's next round */
        memset(tap->count[pair->engine], 0, sizeof tap->count[pair->engine]);
    }
    if (pair->call != TAP_NONE) {
        tap->count[pair->engine][pair->call]++;
        tap_look(tap, pair, false);
    }
}

static inline void tap_drop(TapPair *pair)
{
    close(pair->fd[0]);
    close(pair->fd[1]);
    pair->fd[0] = pair->fd[1] = -1;
}

static inline void tap_pass(Tap *tap, TapPair *pair, int side)
{
    static char bytes[TAP_BYTES];
    ssize_t n = recv(pair->fd[side], bytes, sizeof bytes, 0);
    if (n > 0 && side == 0) {
        tap_note(tap, pair, bytes, (size_t)n);
    } else if (n > 0 && pair->call != TAP_NONE) {
        tap_look(tap, pair, true);
        pair->call = TAP_NONE; /* the first bytes of the answer are what counts */
    }
    for (ssize_t at = 0, sent = 0; n > 0 && at < n; at += sent) {
        sent = send(pair->fd[1 - side], bytes + at, (size_t)(n - at), MSG_NOSIGNAL);
        n = sent <= 0 ? -1 : n;
    }
    if (n <= 0) {
        tap_drop(pair);
    }
}

static inline void tap_accept(Tap *tap, int engine)
{
    int one = 1;
    int client = accept4(tap->listener[engine], NULL, NULL, SOCK_CLOEXEC);
    int to = client < 0 ? -1 : tap_socket(&tap->engine_port[engine], false);
    int at = 0;
    while (at < TAP_PAIRS && tap->pairs[at].fd[0] >= 0) {
        at++;
    }
    if (to < 0 || at == TAP_PAIRS) {
        struct linger reset = {1, 0};
        (void)setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(client);
        if (to < 0 && client >= 0) { /* nobody there: nobody here, until there is */
            close(tap->listener[engine]);
            tap->listener[engine] = -1;
        } else {
            close(to);
        }
        return;
    }
    (void)setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    tap->pairs[at] = (TapPair){{client, to}, engine, TAP_NONE};
}

static inline void tap_listen(Tap *tap)
{
    for (int i = 0; i < TAP_ENGINES; i++) {
        int to = tap->listener[i] < 0 ? tap_socket(&tap->engine_port[i], false) : -1;
        if (to >= 0) {
            close(to);
            tap->listener[i] = tap_socket(&tap->port[i], true);
        }
    }
}

/* For ever. The listeners stand already, so that the ports are known. */
static inline void tap_serve(Tap *tap)
{
    for (int i = 0; i < TAP_PAIRS; i++) {
        tap->pairs[i].fd[0] = tap->pairs[i].fd[1] = -1;
    }
    for (;;) {
        struct pollfd polls[TAP_ENGINES + 2 * TAP_PAIRS];
        nfds_t n = 0;
        tap_listen(tap);
        for (int i = 0; i < TAP_ENGINES; i++) {
            polls[n++] = (struct pollfd){.fd = tap->listener[i], .events = POLLIN};
        }
        for (int i = 0; i < TAP_PAIRS; i++) {
            polls[n++] = (struct pollfd){.fd = tap->pairs[i].fd[0], .events = POLLIN};
            polls[n++] = (struct pollfd){.fd = tap->pairs[i].fd[1], .events = POLLIN};
        }
        (void)poll(polls, n, TAP_LOOK_MS);
        for (int i = 0; i < TAP_PAIRS; i++) {
            for (int side = 0; side < 2; side++) {
                bool ready = polls[TAP_ENGINES + 2 * i + side].revents != 0;
                if (ready && tap->pairs[i].fd[side] >= 0) {
                    tap_pass(tap, &tap->pairs[i], side);
                }
            }
        }
        for (int i = 0; i < TAP_ENGINES; i++) {
            if (polls[i].revents != 0 && tap->listener[i] >= 0) {
                tap_accept(tap, i);
            }
        }
    }
}

#endif
