#include "core/fleet/registration.h"

#include "core/base/mem.h"
#include "core/fleet/json_cursor.h"

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
    int64_t since; /* the look at which it was new */
    int engine;    /* -1: free, -2: of a process that was replaced */
    bool present;  /* on the newest list */
} Listed;

typedef struct Seen { /* one engine */
    Place place;
    int64_t lost; /* the look at which its process was lost: its next one is listed after that */
} Seen;

enum { ENGINE_FREE = -1, ENGINE_SPENT = -2 };

struct Registration {
    Listed *ids;
    size_t id_count, id_capacity;
    Seen *engines;
    int engine_count;
    int64_t looks;
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

/* An id that left the list stays its owner's: an empty list also comes when the frontend could not
 * read its own (dynamo-api 2.2), and a busy worker's entry may lapse for a moment. The entry of a
 * worker that froze for longer stays away, and so does the engine. */
static void note_owners(Registration *r)
{
    for (size_t i = 0; i < r->id_count; i++) {
        if (r->ids[i].engine >= 0) {
            r->engines[r->ids[i].engine].place = r->ids[i].present ? PLACE_LISTED : PLACE_ABSENT;
        }
    }
}

static bool is_free(const Listed *listed)
{
    return listed->present && listed->engine == ENGINE_FREE;
}

/* As many new ids as engines that wait, for everyone who was lost at or behind that look. */
static bool one_for_each(const Registration *r)
{
    for (int i = 0; i < r->engine_count; i++) {
        int ids = 0;
        int waiting = 0;
        for (size_t k = 0; k < r->id_count; k++) {
            ids += is_free(&r->ids[k]) && r->ids[k].since > r->engines[i].lost;
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
        if (is_free(&r->ids[i]) && (!newest || r->ids[i].since > newest->since)) {
            newest = &r->ids[i];
        }
    }
    return newest;
}

/* Ids are handed out only when nobody is left over: which of two engines that wait is the one
 * that registered cannot be told. */
static void hand_out(Registration *r)
{
    if (!one_for_each(r)) {
        return;
    }
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
        newest_free(r)->engine = last;
        r->engines[last].place = PLACE_LISTED;
    }
}

static void take_id(Registration *r, uint64_t id)
{
    Listed *listed = find(r, id);
    if (listed) {
        listed->present = true;
        return;
    }
    if (r->id_count == REGISTRATION_IDS_MAX) { /* the oldest that is gone makes room */
        size_t old = 0;
        while (old < r->id_count && (r->ids[old].present || r->ids[old].engine >= 0)) {
            old++;
        }
        if (old < r->id_count) {
            r->ids[old] = (Listed){id, r->looks, ENGINE_FREE, true};
        }
        return;
    }
    if (r->id_count == r->id_capacity) {
        r->id_capacity = r->id_capacity ? 2 * r->id_capacity : 16;
        r->ids = xrealloc(r->ids, r->id_capacity, sizeof *r->ids);
    }
    r->ids[r->id_count++] = (Listed){id, r->looks, ENGINE_FREE, true};
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

static void read_instance(JsonCursor *c, uint64_t *id, bool *serves)
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
            uint64_t id = 0;
            bool serves = false;
            read_instance(&c, &id, &serves);
            if (take && serves) {
                take_id(r, id);
            }
        }
    }
    return json_at_end(&c) && found;
}

bool registration_health(Registration *r, Str body)
{
    if (!read_health(r, body, false)) {
        return r->known;
    }
    r->known = true;
    r->looks++;
    for (size_t i = 0; i < r->id_count; i++) {
        r->ids[i].present = false;
    }
    (void)read_health(r, body, true);
    note_owners(r);
    hand_out(r);
    return true;
}

static Seen *seen(Registration *r, int engine)
{
    if (engine >= r->engine_count) {
        r->engines = xrealloc(r->engines, (size_t)engine + 1, sizeof *r->engines);
        for (int i = r->engine_count; i <= engine; i++) {
            r->engines[i] = (Seen){PLACE_NONE, 0};
        }
        r->engine_count = engine + 1;
    }
    return &r->engines[engine];
}

void registration_lost(Registration *r, int engine)
{
    seen(r, engine)->lost = r->looks;
}

static void set_place(Registration *r, int engine, Place place)
{
    for (size_t i = 0; i < r->id_count; i++) {
        if (r->ids[i].engine == engine) {
            r->ids[i].engine = ENGINE_SPENT;
        }
    }
    seen(r, engine)->place = place;
    hand_out(r);
}

void registration_came(Registration *r, int engine)
{
    set_place(r, engine, PLACE_WAITS);
}

void registration_gone(Registration *r, int engine)
{
    set_place(r, engine, PLACE_NONE);
}

bool registration_known(const Registration *r)
{
    return r->known;
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
