/* The changing sources of a fleet's addresses, at the edge: a watched file, DNS (A and AAAA of a
 * headless Service, or SRV), and a Dynamo frontend's list of instances. Every look is bounded and
 * beside the loop (thread pool, or one HTTP call), so a dead resolver or a hung network file
 * system delays neither probes nor control. What a look says goes to `on_look` as a whole list;
 * a look that failed is told once per kind of trouble, not each time. */
#ifndef ROLLTOP_FLEET_SOURCES_H
#define ROLLTOP_FLEET_SOURCES_H

#include "core/fleet/discover.h"
#include "core/net/http_client.h"

enum { SOURCES_OWN_PORT = 0 };

typedef struct SourcesConfig {
    const char *file;         /* looked at each second; NULL: none */
    const char *dns;          /* "NAME:PORT": A and AAAA; "_PORT._PROTO.NAME": SRV; NULL: none */
    const char *dns_server;   /* "ADDRESS[:PORT]" to ask instead of the system's; NULL */
    const char *frontend_url; /* whose /health lists instances; with from_frontend */
    bool from_frontend;
    int64_t native_port;      /* engines' port on the instances' hosts; SOURCES_OWN_PORT: as said */
    int64_t interval_ms;      /* of DNS and frontend; 0: 5000 */
} SourcesConfig;

typedef struct SourcesEvents { /* on the loop thread */
    void (*on_look)(DiscoverSource source, const char *const *addresses, size_t count, void *user);
    void (*on_trouble)(DiscoverSource source, const char *words, void *user); /* "" : over */
    void *user;
} SourcesEvents;

typedef struct Sources Sources;
/* Checks the words of the configuration; the first looks begin at once. */
Err sources_new(uv_loop_t *loop, HttpClient *client, const SourcesConfig *config,
                const SourcesEvents *events, Sources **out, Fault *fault);
void sources_free(Sources *sources); /* the loop must run on until looks under way have ended */
/* The words of --engines-dns, before anything starts. */
Err sources_check_dns(const char *dns, Fault *fault);
Err sources_check_server(const char *server, Fault *fault);
/* Instances of one /health body: "HOST:PORT" each; pure. ERR_FORMAT: no such body; ERR_LIMIT: more
 * than `max`; ERR_UNSUPPORTED: instances, and none with an address. */
Err sources_read_instances(Str body, int64_t native_port, char (*out)[DISCOVER_ADDRESS],
                           size_t max, size_t *count, Fault *fault);

#endif
