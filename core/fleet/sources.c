#include "core/fleet/sources.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/fleet/resolve.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

enum {
    TICK_MS = 250,
    FILE_MS = 1000,
    INTERVAL_MS = 5000,
    FILE_MAX = 1 << 20,
    BODY_MAX = 8 << 20,
    FRONTEND_TOTAL_MS = 3000
};

typedef struct Look { /* one look of one source on the pool; owns copies of what it needs */
    uv_work_t work;
    Sources *sources;
    DiscoverSource source;
    char *what, *server;
    char (*found)[DISCOVER_ADDRESS];
    size_t count;
    Err err;
    Fault fault;
} Look;

typedef struct Watched {
    bool wanted, in_flight;
    int64_t due_us, every_us;
    char trouble[FAULT_TEXT_MAX]; /* told last; "" none */
} Watched;

struct Sources {
    uv_loop_t *loop;
    uv_timer_t timer;
    HttpClient *client;
    SourcesConfig config;
    char *file, *dns, *server, *url;
    SourcesEvents events;
    Watched watched[DISCOVER_SOURCE_COUNT];
    bool freeing, timer_closed;
};

/* ---- telling ------------------------------------------------------------------------------ */

static void tell(Sources *s, DiscoverSource source, const char (*found)[DISCOVER_ADDRESS],
                 size_t count)
{
    Watched *w = &s->watched[source];
    const char **list = xcalloc(count + 1, sizeof *list);
    for (size_t i = 0; i < count; i++) {
        list[i] = found[i];
    }
    if (w->trouble[0] && s->events.on_trouble) {
        s->events.on_trouble(source, "", s->events.user);
    }
    w->trouble[0] = '\0';
    s->events.on_look(source, list, count, s->events.user);
    free(list);
}

static void tell_trouble(Sources *s, DiscoverSource source, const char *words)
{
    Watched *w = &s->watched[source];
    if (strcmp(w->trouble, words) != 0) {
        (void)str_format(w->trouble, sizeof w->trouble, "%s", words);
        if (s->events.on_trouble) {
            s->events.on_trouble(source, words, s->events.user);
        }
    }
}

/* ---- file and DNS ------------------------------------------------------------------------- */

static void look_at_file(Look *look)
{
    Text text;
    text_init(&text, FILE_MAX);
    look->err = fs_read(look->what, &text, &look->fault);
    if (look->err == ERR_OK) {
        look->err = discover_read_list(text_str(&text), look->what, look->found, DISCOVER_MAX,
                                       &look->count, &look->fault);
    }
    text_free(&text);
}

static void on_work(uv_work_t *work)
{
    Look *look = work->data;
    look->found = xcalloc(DISCOVER_MAX, sizeof *look->found);
    if (look->source == DISCOVER_FILE) {
        look_at_file(look);
    } else {
        look->err = resolve_addresses(look->what, look->server, look->found, DISCOVER_MAX,
                                      &look->count, &look->fault);
    }
}

static void sources_end(Sources *s);

static void after_work(uv_work_t *work, int status)
{
    Look *look = work->data;
    Sources *s = look->sources;
    s->watched[look->source].in_flight = false;
    if (!s->freeing && status == 0) {
        if (look->err == ERR_OK) {
            tell(s, look->source, (const char (*)[DISCOVER_ADDRESS])look->found, look->count);
        } else {
            tell_trouble(s, look->source, look->fault.sentence);
        }
    }
    free(look->found);
    free(look->what);
    free(look->server);
    free(look);
    sources_end(s);
}

static void begin_look(Sources *s, DiscoverSource source, const char *what, const char *server)
{
    Look *look = xcalloc(1, sizeof *look);
    look->work.data = look;
    look->sources = s;
    look->source = source;
    look->what = xstrdup(what);
    look->server = server ? xstrdup(server) : NULL;
    s->watched[source].in_flight = true;
    if (uv_queue_work(s->loop, &look->work, on_work, after_work) != 0) {
        after_work(&look->work, UV_ECANCELED);
    }
}

/* ---- the frontend's list ------------------------------------------------------------------ */

/* "tcp://HOST:PORT/…", "HOST:PORT/…" -> HOST and PORT of where the worker listens. */
static bool read_transport(const cJSON *transport, Str *host, int64_t *port)
{
    const char *value = json_string(transport, "tcp", json_string(transport, "http", NULL));
    Str s = str_from(value);
    size_t at = 0;
    if (str_find(s, STR("://"), &at)) {
        s = str_slice(s, at + 3, s.n);
    }
    if (str_find(s, STR("/"), &at)) {
        s.n = at;
    }
    if (!str_rfind(s, STR(":"), &at) || !str_to_i64(str_slice(s, at + 1, s.n), port)) {
        return false;
    }
    *host = str_slice(s, 0, at);
    return host->n > 0;
}

Err sources_read_instances(Str body, int64_t native_port, char (*out)[DISCOVER_ADDRESS],
                           size_t max, size_t *count, Fault *fault)
{
    cJSON *tree = NULL;
    int blind = 0;
    *count = 0;
    Err err = json_parse(body, BODY_MAX, "the frontend's /health", &tree, fault);
    const cJSON *instances = json_get(tree, "instances");
    if (err == ERR_OK && !cJSON_IsArray(instances)) {
        err = fault_set(fault, ERR_FORMAT, NULL, "the frontend's /health lists no instances");
    }
    const cJSON *item = err == ERR_OK ? instances->child : NULL;
    for (; item; item = item->next) {
        Str host = {0};
        int64_t port = 0;
        char text[DISCOVER_ADDRESS], address[DISCOVER_ADDRESS];
        if (strcmp(json_string(item, "endpoint", ""), "generate") != 0 ||
            strcmp(json_string(item, "component", ""), "prefill") == 0) {
            continue; /* one worker gives several instance objects */
        }
        bool said = read_transport(json_get(item, "transport"), &host, &port);
        (void)str_format(text, sizeof text, "%.*s:%lld", (int)(host.n < 200 ? host.n : 200),
                         host.p ? host.p : "", (long long)(native_port ? native_port : port));
        if (!said || discover_address(text, address, NULL) != ERR_OK) {
            blind++;
            continue;
        }
        bool twice = false;
        for (size_t i = 0; i < *count; i++) {
            twice = twice || strcmp(out[i], address) == 0;
        }
        if (!twice && *count == max) {
            err = fault_set(fault, ERR_LIMIT, "use --engines-file with the engines of this run",
                            "the frontend lists more than %zu engines", max);
            break;
        }
        if (!twice) {
            (void)str_format(out[(*count)++], DISCOVER_ADDRESS, "%s", address);
        }
    }
    cJSON_Delete(tree);
    if (err == ERR_OK && *count == 0 && blind > 0) {
        err = fault_set(fault, ERR_UNSUPPORTED, "use --engines-dns or --engines-file",
                        "the frontend lists %d instances without a host and port", blind);
    }
    return err;
}

static void on_health(HttpCall *call, const HttpResult *result, void *user)
{
    (void)call;
    Sources *s = user;
    s->watched[DISCOVER_FRONTEND].in_flight = false;
    if (s->freeing) {
        sources_end(s);
        return;
    }
    char words[FAULT_TEXT_MAX];
    Fault fault = {0};
    size_t count = 0;
    char (*found)[DISCOVER_ADDRESS] = xcalloc(DISCOVER_MAX, sizeof *found);
    if (result->end != HTTP_END_OK || result->status != 200) {
        (void)str_format(words, sizeof words, "%.200s/health: %s", s->url,
                         result->end == HTTP_END_OK ? "not 200" : http_end_name(result->end));
        tell_trouble(s, DISCOVER_FRONTEND, words);
    } else if (sources_read_instances(result->body, s->config.native_port, found, DISCOVER_MAX,
                                      &count, &fault) != ERR_OK) {
        tell_trouble(s, DISCOVER_FRONTEND, fault.sentence);
    } else {
        tell(s, DISCOVER_FRONTEND, (const char (*)[DISCOVER_ADDRESS])found, count);
    }
    free(found);
}

static void begin_frontend(Sources *s)
{
    char *url = xasprintf("%s/health", s->url);
    HttpRequestSpec request = {.method = "GET", .url = url, .idempotent = true,
                               .total_ms = FRONTEND_TOTAL_MS, .max_body = BODY_MAX,
                               .on_done = on_health, .user = s};
    s->watched[DISCOVER_FRONTEND].in_flight = http_start(s->client, &request, NULL, NULL) == ERR_OK;
    free(url);
}

/* ---- life --------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
    Sources *s = timer->data;
    int64_t now_us = clock_mono_us();
    for (int i = 0; i < DISCOVER_SOURCE_COUNT; i++) {
        Watched *w = &s->watched[i];
        if (!w->wanted || w->in_flight || now_us < w->due_us) {
            continue;
        }
        w->due_us = now_us + w->every_us;
        if (i == DISCOVER_FILE) {
            begin_look(s, DISCOVER_FILE, s->file, NULL);
        } else if (i == DISCOVER_DNS) {
            begin_look(s, DISCOVER_DNS, s->dns, s->server);
        } else {
            begin_frontend(s);
        }
    }
}

Err sources_check_dns(const char *dns, Fault *fault)
{
    char address[DISCOVER_ADDRESS];
    Str s = str_from(dns);
    size_t dot = 0;
    bool srv = s.n > 3 && s.p[0] == '_' && str_find(s, STR("._"), &dot);
    if (!srv && (strncmp(dns, "http", 4) == 0 || discover_address(dns, address, NULL) != ERR_OK)) {
        return fault_set(fault, ERR_ARG, "write NAME:PORT (its A and AAAA records), or "
                         "_PORT._tcp.NAME (SRV)", "--engines-dns \"%.100s\" is neither", dns);
    }
    return ERR_OK;
}

Err sources_check_server(const char *server, Fault *fault)
{
    char host[64], address[DISCOVER_ADDRESS];
    size_t colon = 0;
    struct in_addr parsed;
    Str s = str_from(server);
    bool with_port = str_rfind(s, STR(":"), &colon);
    (void)str_format(host, sizeof host, "%.*s", (int)(with_port ? colon : s.n), server);
    if (inet_pton(AF_INET, host, &parsed) != 1 ||
        (with_port && discover_address(server, address, NULL) != ERR_OK)) {
        return fault_set(fault, ERR_ARG, "write ADDRESS or ADDRESS:PORT, IPv4",
                         "--engines-dns-server \"%.60s\" is no DNS server", server);
    }
    return ERR_OK;
}

static void watch(Sources *s, DiscoverSource source, int64_t every_ms)
{
    s->watched[source].wanted = true;
    s->watched[source].every_us = every_ms * 1000;
}

Err sources_new(uv_loop_t *loop, HttpClient *client, const SourcesConfig *config,
                const SourcesEvents *events, Sources **out, Fault *fault)
{
    *out = NULL;
    Err err = config->dns ? sources_check_dns(config->dns, fault) : ERR_OK;
    err = err == ERR_OK && config->dns_server ? sources_check_server(config->dns_server, fault)
                                              : err;
    if (err != ERR_OK) {
        return err;
    }
    Sources *s = xcalloc(1, sizeof *s);
    s->loop = loop;
    s->client = client;
    s->config = *config;
    s->events = *events;
    s->file = config->file ? xstrdup(config->file) : NULL;
    s->dns = config->dns ? xstrdup(config->dns) : NULL;
    s->server = config->dns_server ? xstrdup(config->dns_server) : NULL;
    s->url = config->frontend_url ? xstrdup(config->frontend_url) : NULL;
    int64_t interval = config->interval_ms > 0 ? config->interval_ms : INTERVAL_MS;
    if (s->file) {
        watch(s, DISCOVER_FILE, FILE_MS);
    }
    if (s->dns) {
        watch(s, DISCOVER_DNS, interval);
    }
    if (config->from_frontend && s->url) {
        watch(s, DISCOVER_FRONTEND, interval);
    }
    uv_timer_init(loop, &s->timer);
    s->timer.data = s;
    uv_timer_start(&s->timer, on_timer, 0, TICK_MS);
    *out = s;
    return ERR_OK;
}

/* Frees once the timer is closed and no look is under way; both end in here. */
static void sources_end(Sources *s)
{
    bool busy = !s->freeing || !s->timer_closed;
    for (int i = 0; i < DISCOVER_SOURCE_COUNT; i++) {
        busy = busy || s->watched[i].in_flight;
    }
    if (!busy) {
        free(s->file);
        free(s->dns);
        free(s->server);
        free(s->url);
        free(s);
    }
}

static void on_timer_closed(uv_handle_t *handle)
{
    Sources *s = handle->data;
    s->timer_closed = true;
    sources_end(s);
}

void sources_free(Sources *s)
{
    if (s && !s->freeing) {
        s->freeing = true;
        uv_close((uv_handle_t *)&s->timer, on_timer_closed);
    }
}
