#include "core/fleet/registration.h"

#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/fleet/json_cursor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum Place {
    PLACE_NONE,
    PLACE_WAITS,  /* for an id */
    PLACE_LISTED, /* its id is on the newest list … */
    PLACE_ABSENT  /* … or was on it before */
} Place;

typedef struct Listed {
    uint64_t id;
    uint64_t at;   /* hash of the address it names; 0: none */
    int port;      /* of it */
    int64_t since; /* the look at which it was new */
    int64_t guess; /* ids with one number were handed out together, or could have been; 0 */
    int engine;    /* -1: free, -2: of a process that was replaced */
    int before;    /* the engine of that process while the entry has not lapsed since; -1 */
    int64_t doubt_us; /* until then it may be of a process that was lost before it got its id */
    bool present;  /* on the newest list */
} Listed;

typedef struct Seen { /* one engine */
    Place place;
    uint64_t at;  /* hash of its address */
    int port;
    bool dead;    /* its process was lost and is not back */
    int64_t lost; /* the look at which its process was lost: its next one is listed after that */
    int64_t came_us;
} Seen;

enum { ENGINE_FREE = -1, ENGINE_SPENT = -2 };

struct Registration {
    Listed *ids;
    size_t id_count, id_capacity;
    Seen *engines;
    int engine_count;
    int64_t looks, guesses, now_us;
    bool known;
};

Registration *registration_new(void)
{
    return xcalloc(1, sizeof(Registration));
}

void registration_free(Registration *registration)
{
    if (registration) {
        free(registration->ids);
        free(registration->engines);
        free(registration);
    }
}

static Listed *find(Registration *r, uint64_t id)
{
    for (size_t i = 0; i < r->id_count; i++) {
        if (r->ids[i].id == id) {
            return &r->ids[i];
        }
    }
    return NULL;
}

/* "tcp://HOST:PORT/…", "HOST:PORT" -> a number for HOST:PORT; 0: there is none in it. */
static uint64_t place_of(Str address, int *port)
{
    char text[256];
    size_t cut = 0;
    int64_t number = 0;
    *port = 0;
    if (str_find(address, STR("://"), &cut)) {
        address = str_slice(address, cut + 3, address.n);
    }
    if (str_find(address, STR("/"), &cut)) {
        address.n = cut;
    }
    if (address.n >= sizeof text - 16 || !str_rfind(address, STR(":"), &cut) ||
        !str_to_i64(str_slice(address, cut + 1, address.n), &number) || number < 1 ||
        number > 65535) {
        return 0;
    }
    *port = (int)number;
    const bool local = str_starts(address, STR("localhost:"));
    address = local ? str_slice(address, 10, address.n) : address;
    int n = snprintf(text, sizeof text, "%s%.*s", local ? "127.0.0.1:" : "", (int)address.n,
                     address.p);
    return hash64(text, (size_t)n, 0) | 1;
}

/* An id that left the list stays its owner's: an empty list also comes when the frontend could not
 * read its own (dynamo-api 2.2), and a busy worker's entry may lapse for a moment. The entry of a
 * worker that froze for longer stays away, and so does the engine. */
static void note_owners(Registration *r)
{
    for (int pass = 0; pass < 2; pass++) { /* second: one entry that is present is enough */
        for (size_t i = 0; i < r->id_count; i++) {
            const Listed *id = &r->ids[i];
            if (id->engine >= 0 && (pass == 0 || id->present)) {
                r->engines[id->engine].place = pass ? PLACE_LISTED : PLACE_ABSENT;
            }
        }
    }
}

/* Entries that name an engine's own address are its, whichever process answers there. */
static void own_by_address(Registration *r)
{
    for (size_t i = 0; i < r->id_count; i++) {
        for (int k = 0; k < r->engine_count && r->ids[i].at && r->ids[i].present; k++) {
            if (r->engines[k].place != PLACE_NONE && r->engines[k].at == r->ids[i].at) {
                r->ids[i].engine = k;
                break;
            }
        }
    }
}

static bool has_entry(const Registration *r, int engine)
{
    for (size_t i = 0; i < r->id_count; i++) {
        if (r->ids[i].engine == engine && r->ids[i].present) {
            return true;
        }
    }
    return false;
}

/* The entry that may be the one of an engine that lives although `lapsed`, which was taken for it,
 * left the list: handed out together with it, and of a process that was lost, or of nobody. */
static Listed *mistaken_for(Registration *r, const Listed *lapsed)
{
    Listed *found = NULL;
    for (size_t i = 0; i < r->id_count; i++) {
        Listed *id = &r->ids[i];
        const int of = id->engine >= 0 ? id->engine : id->before;
        const bool lost = id->engine == ENGINE_SPENT ? of >= 0
                                                     : of >= 0 && r->engines[of].dead;
        if (id->present && id->guess == lapsed->guess && (lost || id->engine == ENGINE_FREE)) {
            found = !found || lost ? id : found;
        }
    }
    return found;
}

static void correct_guesses(Registration *r)
{
    for (size_t i = 0; i < r->id_count; i++) {
        Listed *id = &r->ids[i];
        const int owner = id->engine;
        if (owner < 0 || id->present || id->guess == 0 || r->engines[owner].dead
            || has_entry(r, owner)) {
            continue;
        }
        Listed *other = mistaken_for(r, id);
        if (other) { /* they change places */
            id->engine = other->engine;
            id->before = other->before;
            other->engine = owner;
            other->before = -1;
        }
    }
}

/* The entry of the process before that nobody took off the list. */
static void own_what_was_kept(Registration *r, int64_t now_us)
{
    for (size_t i = 0; i < r->id_count; i++) {
        Listed *id = &r->ids[i];
        id->before = id->present ? id->before : -1;
        const Seen *seen = id->before >= 0 ? &r->engines[id->before] : NULL;
        if (seen && id->engine == ENGINE_SPENT && seen->place == PLACE_WAITS
            && id->port == seen->port && now_us - seen->came_us >= REGISTRATION_KEPT_US) {
            id->engine = id->before;
        }
    }
}

static bool is_free(const Registration *r, const Listed *listed)
{
    return listed->present && listed->engine == ENGINE_FREE && r->now_us >= listed->doubt_us;
}

/* The process of an engine that waits is no more: one of the free ids may be its, and goes within
 * the time of a dead one. Until then none of them is anybody's. */
static void doubt_free(Registration *r, const Seen *waits)
{
    for (size_t i = 0; i < r->id_count && waits->place == PLACE_WAITS; i++) {
        Listed *id = &r->ids[i];
        if (id->engine == ENGINE_FREE && id->since > waits->lost) {
            id->doubt_us = r->now_us + REGISTRATION_KEPT_US;
        }
    }
}

/* As many new ids as engines that wait, for everyone who was lost at or behind that look. */
static bool one_for_each(const Registration *r)
{
    for (int i = 0; i < r->engine_count; i++) {
        int ids = 0;
        int waiting = 0;
        for (size_t k = 0; k < r->id_count; k++) {
            ids += is_free(r, &r->ids[k]) && r->ids[k].since > r->engines[i].lost;
        }
        for (int k = 0; k < r->engine_count; k++) {
            waiting += r->engines[k].place == PLACE_WAITS
                       && r->engines[k].lost >= r->engines[i].lost;
        }
        if (r->engines[i].place == PLACE_WAITS && ids < waiting) {
            return false;
        }
    }
    return true;
}

/* The newest free id, for the engine that was lost last: so everyone gets one that is his to
 * have whenever that is possible. */
static Listed *newest_free(Registration *r)
{
    Listed *newest = NULL;
    for (size_t i = 0; i < r->id_count; i++) {
        if (is_free(r, &r->ids[i]) && (!newest || r->ids[i].since > newest->since)) {
            newest = &r->ids[i];
        }
    }
    return newest;
}

/* The free ids, and those that they could have been taken for before, are one guess. */
static void note_guess(Registration *r)
{
    const int64_t now = ++r->guesses;
    for (size_t i = 0; i < r->id_count; i++) {
        const int64_t before = r->ids[i].guess;
        if (!is_free(r, &r->ids[i])) {
            continue;
        }
        for (size_t k = 0; k < r->id_count && before > 0; k++) {
            r->ids[k].guess = r->ids[k].guess == before ? now : r->ids[k].guess;
        }
        r->ids[i].guess = now;
    }
}

/* Ids are handed out only when nobody is left over: which of two engines that wait is the one
 * that registered cannot be told. */
static void hand_out(Registration *r)
{
    if (!one_for_each(r)) {
        return;
    }
    bool guessed = false;
    for (;;) {
        int last = -1;
        for (int i = 0; i < r->engine_count; i++) {
            if (r->engines[i].place == PLACE_WAITS
                && (last < 0 || r->engines[i].lost > r->engines[last].lost)) {
                last = i;
            }
        }
        if (last < 0) {
            return;
        }
        if (!guessed) {
            note_guess(r);
            guessed = true;
        }
        newest_free(r)->engine = last;
        r->engines[last].place = PLACE_LISTED;
    }
}

static void take_id(Registration *r, uint64_t id, uint64_t at, int port)
{
    const Listed fresh = {.id = id, .at = at, .port = port, .since = r->looks,
                          .engine = ENGINE_FREE, .before = -1, .present = true};
    Listed *listed = find(r, id);
    if (listed) {
        listed->present = true;
        listed->at = at;
        listed->port = port;
        return;
    }
    if (r->id_count == REGISTRATION_IDS_MAX) { /* the oldest that is gone makes room */
        size_t old = 0;
        while (old < r->id_count && (r->ids[old].present || r->ids[old].engine >= 0)) {
            old++;
        }
        if (old < r->id_count) {
            r->ids[old] = fresh;
        }
        return;
    }
    if (r->id_count == r->id_capacity) {
        r->id_capacity = r->id_capacity ? 2 * r->id_capacity : 16;
        r->ids = xrealloc(r->ids, r->id_capacity, sizeof *r->ids);
    }
    r->ids[r->id_count++] = fresh;
}

/* Ids are 64 bits without a sign; the number is read from its digits. */
static bool read_id(JsonCursor *c, uint64_t *id)
{
    const char *from = c->p;
    if (!json_skip(c)) {
        return false;
    }
    *id = 0;
    for (const char *p = from; p < c->p; p++) {
        if (*p >= '0' && *p <= '9') {
            if (*id > (UINT64_MAX - 9) / 10) {
                return false;
            }
            *id = *id * 10 + (uint64_t)(*p - '0');
        } else if (*p != ' ' && *p != '\n' && *p != '\r' && *p != '\t') {
            return false;
        }
    }
    return true;
}

/* {"tcp":"HOST:PORT/…"}: the first string in it that is an address. */
static uint64_t read_transport(JsonCursor *c, int *port)
{
    bool first = true;
    uint64_t at = 0;
    Str key;
    if (json_peek(c) != '{') {
        json_skip(c);
        return 0;
    }
    json_enter(c, '{');
    while (json_member(c, &first, &key)) {
        Str value = {NULL, 0};
        if (at == 0 && json_peek(c) == '"') {
            json_raw_string(c, &value);
            at = place_of(value, port);
        } else {
            json_skip(c);
        }
    }
    return at;
}

static void read_instance(JsonCursor *c, uint64_t *id, uint64_t *at, int *port, bool *serves)
{
    bool first = true;
    bool has_id = false;
    Str key;
    Str endpoint = {NULL, 0};
    json_enter(c, '{');
    while (json_member(c, &first, &key)) {
        if (str_equal(key, STR("instance_id"))) {
            has_id = read_id(c, id);
        } else if (str_equal(key, STR("endpoint")) && json_peek(c) == '"') {
            json_raw_string(c, &endpoint);
        } else if (str_equal(key, STR("transport"))) {
            *at = read_transport(c, port);
        } else {
            json_skip(c);
        }
    }
    *serves = has_id && str_equal(endpoint, STR("generate"));
}

/* One pass; `take` false only checks. */
static bool read_health(Registration *r, Str body, bool take)
{
    JsonCursor c = json_cursor(body);
    bool first = true;
    bool found = false;
    Str key;
    json_enter(&c, '{');
    while (json_member(&c, &first, &key)) {
        if (!str_equal(key, STR("instances")) || json_peek(&c) != '[') {
            json_skip(&c);
            continue;
        }
        bool inner = true;
        found = true;
        json_enter(&c, '[');
        while (json_element(&c, &inner)) {
            uint64_t id = 0, at = 0;
            int port = 0;
            bool serves = false;
            read_instance(&c, &id, &at, &port, &serves);
            if (take && serves) {
                take_id(r, id, at, port);
            }
        }
    }
    return json_at_end(&c) && found;
}

bool registration_health(Registration *r, Str body, int64_t now_us)
{
    if (!read_health(r, body, false)) {
        return r->known;
    }
    r->known = true;
    r->looks++;
    r->now_us = now_us;
    for (size_t i = 0; i < r->id_count; i++) {
        r->ids[i].present = false;
    }
    (void)read_health(r, body, true);
    own_by_address(r);
    correct_guesses(r);
    own_what_was_kept(r, now_us);
    note_owners(r);
    hand_out(r);
    return true;
}

static Seen *seen(Registration *r, int engine)
{
    if (engine >= r->engine_count) {
        r->engines = xrealloc(r->engines, (size_t)engine + 1, sizeof *r->engines);
        for (int i = r->engine_count; i <= engine; i++) {
            r->engines[i] = (Seen){.place = PLACE_NONE};
        }
        r->engine_count = engine + 1;
    }
    return &r->engines[engine];
}

void registration_lost(Registration *r, int engine)
{
    doubt_free(r, seen(r, engine));
    seen(r, engine)->lost = r->looks;
    seen(r, engine)->dead = true;
}

void registration_back(Registration *r, int engine)
{
    seen(r, engine)->dead = false;
}

static void set_place(Registration *r, int engine, Place place)
{
    for (size_t i = 0; i < r->id_count; i++) {
        if (r->ids[i].engine == engine) {
            r->ids[i].engine = ENGINE_SPENT;
            r->ids[i].before = engine;
        }
    }
    seen(r, engine)->place = place;
    own_by_address(r);
    note_owners(r);
    hand_out(r);
}

void registration_came(Registration *r, int engine, const char *address, int64_t now_us)
{
    Seen *mine = seen(r, engine);
    r->now_us = now_us;
    doubt_free(r, mine);
    mine->came_us = now_us;
    mine->dead = false;
    mine->at = place_of(str_from(address), &mine->port);
    set_place(r, engine, PLACE_WAITS);
}

void registration_gone(Registration *r, int engine)
{
    set_place(r, engine, PLACE_NONE);
}

bool registration_listed(const Registration *r, int engine)
{
    return !r->known || (engine < r->engine_count
                         && r->engines[engine].place == PLACE_LISTED);
}

int registration_count(const Registration *r)
{
    int count = 0;
    for (size_t i = 0; i < r->id_count; i++) {
        count += r->ids[i].present;
    }
    return count;
}
