#include "core/app/fleet_flags.h"

#include "core/base/fs.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { INTERVAL_S = 5, GONE_LOOKS = 3 };

void fleet_flags_defaults(FleetFlags *f)
{
    const ProbeSettings p = probe_settings_default();
    *f = (FleetFlags){.interval_s = INTERVAL_S, .gone_looks = GONE_LOOKS, .ping_ms = p.ping_ms,
                      .loads_ms = p.loads_ms, .model_ms = p.model_ms, .health_ms = p.health_ms,
                      .metrics_ms = p.metrics_ms, .stale_ms = p.stale_ms, .dead_ms = p.dead_ms,
                      .stuck_ms = p.stuck_ms, .refused_limit = p.refused_limit,
                      .calm_ms = p.calm_ms};
}

size_t fleet_flags_specs(FleetFlags *f, FlagSpec out[FLEET_FLAG_SPECS])
{
#define MS(n, field, low, words) {n, FLAG_INT, &f->field, low, 86400000, "MS", words, NULL}
    const FlagSpec specs[] = {
        {"engines-file", FLAG_STRING, &f->file, 0, 0, "FILE",
         "engines, HOST:PORT a line; read again when it changes", NULL},
        {"engines-dns", FLAG_STRING, &f->dns, 0, 0, "NAME",
         "engines by DNS: NAME:PORT (A, AAAA) or _PORT._tcp.NAME (SRV)", NULL},
        {"engines-dns-server", FLAG_STRING, &f->dns_server, 0, 0, "ADDRESS",
         "DNS server to ask (default: the system's)", NULL},
        {"engines-from-frontend", FLAG_INT, &f->native_port, 0, 65535, "PORT",
         "engines on the hosts that the frontend lists; 0: their own ports", &f->from_frontend},
        {"discover-interval", FLAG_INT, &f->interval_s, 1, 86400, "S",
         "seconds between looks at DNS and the frontend's list (5)", NULL},
        {"discover-gone-looks", FLAG_INT, &f->gone_looks, 1, 1000, "N",
         "looks in a row without an engine until it leaves (3)", NULL},
        MS("probe-ping-ms", ping_ms, 10, "between signs of life of an engine (500)"),
        MS("probe-loads-ms", loads_ms, 10, "between looks at its load (500)"),
        MS("probe-model-ms", model_ms, 10, "between looks at its policy and process (2000)"),
        MS("probe-health-ms", health_ms, 0, "between generation health checks; 0: none (10000)"),
        MS("probe-metrics-ms", metrics_ms, 0, "between scrapes of its metrics; 0: none (1000)"),
        MS("probe-stale-ms", stale_ms, 10, "without an answer: stale (1500)"),
        MS("probe-dead-ms", dead_ms, 20, "without an answer: dead (2600)"),
        {"probe-refused-limit", FLAG_INT, &f->refused_limit, 1, 1000, "N",
         "refused connections in a row: dead (3)", NULL},
        MS("probe-stuck-ms", stuck_ms, 100, "with requests and without a token: stuck (20000)"),
        MS("probe-calm-ms", calm_ms, 0, "of good signs until slow, busy or stuck is over (1000)"),
    };
#undef MS
    _Static_assert(sizeof specs / sizeof *specs == FLEET_FLAG_SPECS, "room for every flag");
    memcpy(out, specs, sizeof specs);
    return sizeof specs / sizeof *specs;
}

bool fleet_flags_any_source(const FleetFlags *f)
{
    return f->file || f->dns || f->from_frontend;
}

static Err check_file(const char *path, Fault *fault)
{
    Text text;
    size_t count = 0;
    char (*found)[DISCOVER_ADDRESS] = xcalloc(DISCOVER_MAX, sizeof *found);
    text_init(&text, 1 << 20);
    Err err = fs_read(path, &text, fault);
    err = err ? err
              : discover_read_list(text_str(&text), path, found, DISCOVER_MAX, &count, fault);
    text_free(&text);
    free(found);
    return err;
}

Err fleet_flags_check(const FleetFlags *f, bool frontend, Fault *fault)
{
    if (f->stale_ms >= f->dead_ms) {
        return fault_set(fault, ERR_ARG, "make --probe-stale-ms the smaller one",
                         "--probe-stale-ms %lld is not below --probe-dead-ms %lld",
                         (long long)f->stale_ms, (long long)f->dead_ms);
    }
    if (f->ping_ms >= f->dead_ms || f->loads_ms >= f->dead_ms) {
        return fault_set(fault, ERR_ARG, "probe more often, or wait longer",
                         "--probe-ping-ms %lld and --probe-loads-ms %lld must be below "
                         "--probe-dead-ms %lld: else silence between two probes is death",
                         (long long)f->ping_ms, (long long)f->loads_ms, (long long)f->dead_ms);
    }
    if (f->from_frontend && !frontend) {
        return fault_set(fault, ERR_ARG, "give --rollout-url, or name the engines",
                         "--engines-from-frontend needs a frontend of others");
    }
    if (f->dns_server && !f->dns) {
        return fault_set(fault, ERR_ARG, "give --engines-dns NAME:PORT",
                         "--engines-dns-server is of no use without --engines-dns");
    }
    Err err = f->dns ? sources_check_dns(f->dns, fault) : ERR_OK;
    err = err == ERR_OK && f->dns_server ? sources_check_server(f->dns_server, fault) : err;
    return err == ERR_OK && f->file ? check_file(f->file, fault) : err;
}

SourcesConfig fleet_flags_sources(const FleetFlags *f)
{
    return (SourcesConfig){.file = f->file, .dns = f->dns, .dns_server = f->dns_server,
                           .from_frontend = f->from_frontend, .native_port = f->native_port,
                           .interval_ms = f->interval_s * 1000};
}

ProbeSettings fleet_flags_probe(const FleetFlags *f)
{
    return (ProbeSettings){.ping_ms = f->ping_ms, .loads_ms = f->loads_ms,
                           .model_ms = f->model_ms, .health_ms = f->health_ms,
                           .metrics_ms = f->metrics_ms, .stale_ms = f->stale_ms,
                           .dead_ms = f->dead_ms, .refused_limit = (int)f->refused_limit,
                           .stuck_ms = f->stuck_ms, .calm_ms = f->calm_ms};
}

/* ---- addresses ---------------------------------------------------------------------------- */

static Err read_url(const char *url, char **out, Fault *fault)
{
    if (strncmp(url, "http://", 7) != 0 || strpbrk(url + 7, "/?#\" ") || !strchr(url + 7, ':')) {
        return fault_set(fault, ERR_ARG, "write http://HOST:PORT",
                         "the frontend's URL \"%.200s\" is not one", url);
    }
    *out = xstrdup(url);
    return ERR_OK;
}

Err fleet_addresses_read(const FlagList *flag, const char *url, FleetAddresses *out, Fault *fault)
{
    const char *words = getenv("DYNAMO_ENGINE_ADDRS");
    Err err = ERR_OK;
    *out = (FleetAddresses){.from_environment = flag->count == 0 && words && words[0]};
    out->storage = xcalloc(DISCOVER_MAX, sizeof *out->storage);
    out->list = xcalloc(DISCOVER_MAX, sizeof *out->list);
    for (size_t i = 0; i < flag->count && i < DISCOVER_MAX && err == ERR_OK; i++) {
        err = discover_address(flag->items[i], out->storage[out->count++], fault);
    }
    if (out->from_environment) {
        err = discover_read_list(str_from(words), "DYNAMO_ENGINE_ADDRS", out->storage,
                                 DISCOVER_MAX, &out->count, fault);
    }
    for (size_t i = 0; i < out->count; i++) {
        out->list[i] = out->storage[i];
    }
    url = url && url[0] ? url : getenv("DYNAMO_ROLLOUT_URL");
    return err == ERR_OK && url && url[0] ? read_url(url, &out->frontend, fault) : err;
}

void fleet_addresses_free(FleetAddresses *addresses)
{
    free(addresses->storage);
    free(addresses->list);
    free(addresses->frontend);
    *addresses = (FleetAddresses){0};
}
