/* libc's resolver on a thread of the pool. A and AAAA through getaddrinfo (which also knows
 * /etc/hosts), SRV through res_nsearch; with a server of one's own everything through res_nquery.
 * Why not a library of its own: libc's is everywhere and reads the pod's resolv.conf. */
#include "core/fleet/resolve.h"

#include "core/base/mem.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { ANSWER_MAX = 65536, RETRANS_S = 2, TRIES = 2, HOST_MAX = NS_MAXDNAME };

typedef struct Found {
    char (*out)[DISCOVER_ADDRESS];
    size_t max, count;
} Found;

static bool found_add(Found *f, const char *host, int64_t port, bool v6)
{
    if (f->count < f->max) {
        (void)str_format(f->out[f->count++], DISCOVER_ADDRESS, v6 ? "[%s]:%lld" : "%s:%lld", host,
                         (long long)port);
        return true;
    }
    return false;
}

static int compare(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void sort_unique(Found *f)
{
    size_t kept = 0;
    qsort(f->out, f->count, sizeof *f->out, compare);
    for (size_t i = 0; i < f->count; i++) {
        if (kept == 0 || strcmp(f->out[kept - 1], f->out[i]) != 0) {
            memmove(f->out[kept++], f->out[i], sizeof *f->out);
        }
    }
    f->count = kept;
}

/* ---- the system's way --------------------------------------------------------------------- */

static Err by_system(const char *host, int64_t port, Found *f, Fault *fault)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    int code = getaddrinfo(host, NULL, &hints, &list);
    if (code == EAI_NONAME || code == EAI_NODATA) {
        return ERR_OK;
    }
    if (code != 0) {
        return fault_set(fault, ERR_NET, NULL, "the name %.100s was not resolved: %s", host,
                         gai_strerror(code));
    }
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        char text[INET6_ADDRSTRLEN];
        bool v6 = a->ai_family == AF_INET6;
        const void *bytes = NULL;
        if (v6) {
            bytes = &((const struct sockaddr_in6 *)(const void *)a->ai_addr)->sin6_addr;
        } else {
            bytes = &((const struct sockaddr_in *)(const void *)a->ai_addr)->sin_addr;
        }
        if (inet_ntop(a->ai_family, bytes, text, sizeof text)) {
            found_add(f, text, port, v6);
        }
    }
    freeaddrinfo(list);
    return ERR_OK;
}

/* ---- asking by hand ----------------------------------------------------------------------- */

static bool set_server(res_state state, const char *server)
{
    Str s = str_from(server);
    char host[64];
    size_t colon = 0;
    int64_t port = 53;
    if (str_rfind(s, STR(":"), &colon)) {
        if (!str_to_i64(str_slice(s, colon + 1, s.n), &port) || port < 1 || port > 65535) {
            return false;
        }
        s.n = colon;
    }
    (void)str_format(host, sizeof host, "%.*s", (int)s.n, s.p);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1) {
        return false;
    }
    state->nsaddr_list[0] = to;
    state->nscount = 1;
    return true;
}

static void take_record(const ns_msg *message, const ns_rr *record, int64_t port, Found *f)
{
    char text[INET6_ADDRSTRLEN];
    char host[HOST_MAX];
    const unsigned char *data = ns_rr_rdata(*record);
    if (ns_rr_type(*record) == ns_t_a && ns_rr_rdlen(*record) == 4 &&
        inet_ntop(AF_INET, data, text, sizeof text)) {
        found_add(f, text, port, false);
    } else if (ns_rr_type(*record) == ns_t_aaaa && ns_rr_rdlen(*record) == 16 &&
               inet_ntop(AF_INET6, data, text, sizeof text)) {
        found_add(f, text, port, true);
    } else if (ns_rr_type(*record) == ns_t_srv && ns_rr_rdlen(*record) > 6) {
        unsigned to = ns_get16(data + 4);
        if (ns_name_uncompress(ns_msg_base(*message), ns_msg_end(*message), data + 6, host,
                               sizeof host) > 0 && to > 0 && host[0] && strcmp(host, ".") != 0) {
            char address[DISCOVER_ADDRESS], whole[HOST_MAX + 8];
            (void)str_format(whole, sizeof whole, "%s:%u", host, to);
            if (discover_address(whole, address, NULL) == ERR_OK) { /* hostile names stay out */
                found_add(f, host, to, false);
            }
        }
    }
}

static Err ask(res_state state, const char *name, ns_type type, bool search, int64_t port,
               Found *f, Fault *fault)
{
    unsigned char *answer = xcalloc(1, ANSWER_MAX);
    int n = search ? res_nsearch(state, name, ns_c_in, (int)type, answer, ANSWER_MAX)
                   : res_nquery(state, name, ns_c_in, (int)type, answer, ANSWER_MAX);
    ns_msg message;
    Err err = ERR_OK;
    if (n < 0 && (state->res_h_errno == HOST_NOT_FOUND || state->res_h_errno == NO_DATA)) {
        goto done; /* nobody has this name now */
    }
    if (n < 0 || n > ANSWER_MAX || ns_initparse(answer, n, &message) != 0) {
        err = fault_set(fault, ERR_NET, NULL, "the name %.100s was not resolved: %s", name,
                        n < 0 ? hstrerror(state->res_h_errno) : "the reply cannot be read");
        goto done;
    }
    for (int i = 0; i < ns_msg_count(message, ns_s_an); i++) {
        ns_rr record;
        if (ns_parserr(&message, ns_s_an, i, &record) == 0 && ns_rr_type(record) == type) {
            take_record(&message, &record, port, f);
        }
    }
done:
    free(answer);
    return err;
}

static Err by_hand(const char *name, int64_t port, bool srv, const char *server, Found *f,
                   Fault *fault)
{
    struct __res_state state = {0};
    if (res_ninit(&state) != 0) {
        return fault_set(fault, ERR_NET, NULL, "the resolver's configuration cannot be read");
    }
    state.retrans = RETRANS_S;
    state.retry = TRIES;
    Err err = ERR_OK;
    if (server && !set_server(&state, server)) {
        err = fault_set(fault, ERR_ARG, "write ADDRESS or ADDRESS:PORT, IPv4",
                        "\"%.60s\" is no DNS server", server);
    } else if (srv) {
        err = ask(&state, name, ns_t_srv, server == NULL, 0, f, fault);
    } else {
        err = ask(&state, name, ns_t_a, server == NULL, port, f, fault);
        err = err ? err : ask(&state, name, ns_t_aaaa, server == NULL, port, f, fault);
    }
    res_nclose(&state);
    return err;
}

Err resolve_addresses(const char *dns, const char *server, char (*out)[DISCOVER_ADDRESS],
                      size_t max, size_t *count, Fault *fault)
{
    Found found = {out, max, 0};
    Str whole = str_from(dns);
    char name[HOST_MAX];
    size_t colon = 0;
    int64_t port = 0;
    const bool srv = dns[0] == '_';
    *count = 0;
    if (!srv && (!str_rfind(whole, STR(":"), &colon) ||
                 !str_to_i64(str_slice(whole, colon + 1, whole.n), &port))) {
        return fault_set(fault, ERR_ARG, "write NAME:PORT or _PORT._PROTO.NAME",
                         "\"%.100s\" is no name to resolve", dns);
    }
    whole.n = srv ? whole.n : colon;
    (void)str_format(name, sizeof name, "%.*s", (int)whole.n, whole.p);
    Err err = srv || server ? by_hand(name, port, srv, server, &found, fault)
                            : by_system(name, port, &found, fault);
    sort_unique(&found);
    *count = err ? 0 : found.count;
    return err;
}
