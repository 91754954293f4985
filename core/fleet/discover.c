#include "core/fleet/discover.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct Entry {
    char *address;
    unsigned listed;             /* sources that list it, 1u << source */
    int missed[DISCOVER_SOURCE_COUNT]; /* looks in a row without it, while still listed */
    int8_t word;                 /* the operator's: +1 in, -1 out, 0 none */
    bool member, pending;        /* pending: the change was not taken yet */
    char reason[128];
} Entry;

struct Discover {
    Entry *entries;
    int count, gone_looks;
    bool full, full_told;
};

const char *discover_source_name(DiscoverSource source)
{
    static const char *const names[] = {
#define NAME(name, words) [name] = words,
        DISCOVER_SOURCES(NAME)
#undef NAME
    };
    return names[source];
}

Discover *discover_new(int gone_looks)
{
    Discover *d = xcalloc(1, sizeof *d);
    d->gone_looks = gone_looks > 1 ? gone_looks : 1;
    return d;
}

void discover_free(Discover *d)
{
    for (int i = 0; d && i < d->count; i++) {
        free(d->entries[i].address);
    }
    if (d) {
        free(d->entries);
        free(d);
    }
}

/* ---- addresses ---------------------------------------------------------------------------- */

static bool good_host(Str host)
{
    for (size_t i = 0; i < host.n; i++) {
        char c = host.p[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    (c != '\0' && strchr(".-_:[]%", c) != NULL);
        if (!good) {
            return false;
        }
    }
    size_t colon = 0;
    bool bare_v6 = host.n > 0 && host.p[0] != '[' && str_find(host, STR(":"), &colon);
    return host.n > 0 && !bare_v6;
}

Err discover_address(const char *text, char out[DISCOVER_ADDRESS], Fault *fault)
{
    Str whole = str_trim(str_from(text));
    while (whole.n > 0 && whole.p[whole.n - 1] == '/') {
        whole.n--;
    }
    bool tls = str_starts(whole, STR("https://"));
    Str s = str_starts(whole, STR("http://")) ? str_slice(whole, 7, whole.n)
                                              : tls ? str_slice(whole, 8, whole.n) : whole;
    size_t colon = 0;
    int64_t port = 0;
    bool good = str_rfind(s, STR(":"), &colon) &&
                str_to_i64(str_slice(s, colon + 1, s.n), &port) && port >= 1 && port <= 65535 &&
                good_host(str_slice(s, 0, colon)) && s.n + 8 < DISCOVER_ADDRESS - 1;
    if (!good) {
        return fault_set(fault, ERR_ARG, "write an engine as HOST:PORT, e.g. 10.0.0.7:30000",
                         "\"%.100s\" is not the address of an engine", text);
    }
    (void)str_format(out, DISCOVER_ADDRESS, "%s%.*s", tls ? "https://" : "", (int)s.n, s.p);
    return ERR_OK;
}

Err discover_read_list(Str text, const char *name, char (*out)[DISCOVER_ADDRESS], size_t max,
                       size_t *count, Fault *fault)
{
    Str line = {0};
    *count = 0;
    for (int number = 1; str_split(&text, '\n', &line); number++) {
        size_t hash = 0;
        if (str_find(line, STR("#"), &hash)) {
            line = str_slice(line, 0, hash);
        }
        size_t at = 0;
        while (at < line.n) {
            char word[DISCOVER_ADDRESS];
            size_t n = 0;
            for (; at < line.n && !strchr(" \t\r,", line.p[at]); at++) {
                word[n] = line.p[at];
                n += n + 1 < sizeof word;
            }
            word[n] = '\0';
            at++;
            Fault bad = {0};
            if (n == 0) {
                continue;
            }
            if (*count == max) {
                return fault_set(fault, ERR_LIMIT, "take lines out of it",
                                 "%s lists more than %zu engines", name, max);
            }
            if (discover_address(word, out[*count], &bad) != ERR_OK) {
                return fault_set(fault, ERR_FORMAT, bad.hint, "%s:%d: %s", name, number,
                                 bad.sentence);
            }
            (*count)++;
        }
    }
    return ERR_OK;
}

/* ---- membership --------------------------------------------------------------------------- */

static Entry *find(Discover *d, const char *address)
{
    for (int i = 0; i < d->count; i++) {
        if (strcmp(d->entries[i].address, address) == 0) {
            return &d->entries[i];
        }
    }
    return NULL;
}

static Entry *find_or_make(Discover *d, const char *address)
{
    Entry *found = find(d, address);
    if (found || d->count >= DISCOVER_MAX) {
        d->full = d->full || !found;
        return found;
    }
    d->entries = xrealloc(d->entries, (size_t)d->count + 1, sizeof *d->entries);
    Entry *e = &d->entries[d->count++];
    *e = (Entry){.address = xstrdup(address)};
    return e;
}

/* A change that is undone before anybody took it is no change. */
static void settle(Entry *e, const char *reason)
{
    bool member = e->word > 0 || (e->word == 0 && e->listed != 0);
    if (member != e->member) {
        e->member = member;
        e->pending = !e->pending;
        (void)str_format(e->reason, sizeof e->reason, "%s", reason);
    }
}

static bool has(const char *const *addresses, size_t count, const char *address)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(addresses[i], address) == 0) {
            return true;
        }
    }
    return false;
}

static int looks_needed(const Discover *d, DiscoverSource source)
{
    return source == DISCOVER_DNS || source == DISCOVER_FRONTEND ? d->gone_looks : 1;
}

void discover_look(Discover *d, DiscoverSource source, const char *const *addresses, size_t count)
{
    const unsigned bit = 1u << source;
    char reason[128];
    (void)str_format(reason, sizeof reason, "listed by %s", discover_source_name(source));
    for (size_t i = 0; i < count; i++) {
        Entry *e = find_or_make(d, addresses[i]);
        if (e) {
            e->listed |= bit;
            e->missed[source] = 0;
            settle(e, reason);
        }
    }
    (void)str_format(reason, sizeof reason, "no longer listed by %s", discover_source_name(source));
    for (int i = 0; i < d->count; i++) {
        Entry *e = &d->entries[i];
        if ((e->listed & bit) && !has(addresses, count, e->address) &&
            ++e->missed[source] >= looks_needed(d, source)) {
            e->listed &= ~bit;
            settle(e, reason);
        }
    }
}

void discover_operator(Discover *d, const char *address, bool add, const char *reason)
{
    Entry *e = find_or_make(d, address);
    if (e) {
        e->word = add ? 1 : -1;
        settle(e, reason);
    }
}

bool discover_next(Discover *d, DiscoverChange *out)
{
    for (int i = 0; i < d->count; i++) {
        Entry *e = &d->entries[i];
        if (e->pending) {
            e->pending = false;
            out->add = e->member;
            (void)str_format(out->address, sizeof out->address, "%s", e->address);
            (void)str_format(out->reason, sizeof out->reason, "%s", e->reason);
            return true;
        }
        if (!e->member && e->listed == 0 && e->word == 0) { /* nobody speaks of it any more */
            free(e->address);
            *e = d->entries[--d->count];
            i--;
        }
    }
    return false;
}

int discover_count(const Discover *d)
{
    int members = 0;
    for (int i = 0; i < d->count; i++) {
        members += d->entries[i].member;
    }
    return members;
}

bool discover_full(Discover *d)
{
    bool first = d->full && !d->full_told;
    d->full_told = d->full;
    return first;
}
