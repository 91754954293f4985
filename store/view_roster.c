#include "store/view_private.h"

#include <stdlib.h>
#include <string.h>

enum { PULL_MAX = 8192 }; /* rows that came at once and are still worth following */

struct Roster {
    Member *items; /* in order of engine */
    size_t count, capacity;
    int64_t newest[ROSTER_PARTS]; /* last row that was read of each table */
    bool loaded;
    int64_t turn; /* of the view, in which it was brought up to date */
};

/* Columns of `row`: time, four of the part itself, then engine and number of the change (pull) or
 * the time of the next change (at). `fill` takes NULL: there is nothing at that time. */
typedef struct Part {
    const char *at, *next, *pull, *max;
    void (*fill)(Member *member, sqlite3_stmt *row);
} Part;

#define PART_SQL(table, columns)                                                                  \
    .at = "SELECT t_us, " columns ", (SELECT min(t_us) FROM " table                               \
          " WHERE engine = ?1 AND t_us > ?2) FROM " table                                         \
          " WHERE engine = ?1 AND t_us <= ?2 ORDER BY t_us DESC, change_id DESC LIMIT 1",         \
    .next = "SELECT min(t_us) FROM " table " WHERE engine = ?1 AND t_us > ?2",                    \
    .pull = "SELECT t_us, " columns ", engine, change_id FROM " table                             \
            " WHERE change_id > ?1 ORDER BY change_id LIMIT ?2",                                  \
    .max = "SELECT max(change_id) FROM " table
enum { COLUMN_NEXT = 5, COLUMN_ENGINE = 5, COLUMN_CHANGE = 6 };

static void set_text(char **text, sqlite3_stmt *row, int column)
{
    const char *now = row != NULL ? (const char *)sqlite3_column_text(row, column) : NULL;
    if (now != NULL && *text != NULL && strcmp(now, *text) == 0) {
        return;
    }
    free(*text);
    *text = now != NULL ? xstrdup(now) : NULL;
}

static void fill_name(Member *member, sqlite3_stmt *row)
{
    member->present = row != NULL;
    set_text(&member->name, row, 1);
    set_text(&member->address, row, 2);
    member->local = row != NULL && sqlite3_column_int(row, 3) != 0;
}

static void fill_life(Member *member, sqlite3_stmt *row)
{
    member->born = row != NULL;
    member->incarnation = row != NULL ? sqlite3_column_int64(row, 1) : 0;
    member->pid = row != NULL ? sqlite3_column_int64(row, 2) : 0;
}

static void fill_state(Member *member, sqlite3_stmt *row)
{
    member->stated = row != NULL;
    member->state = row != NULL ? (EngineState)sqlite3_column_int(row, 1) : ENGINE_STARTING;
    member->since_us = row != NULL ? sqlite3_column_int64(row, 2) : 0;
    member->policy_version = row != NULL ? column_i64(row, 3, -1) : -1;
    set_text(&member->reason, row, 4);
}

static const Part parts[ROSTER_PARTS] = {
    [ROSTER_NAME] = {PART_SQL("engine", "name, address, local, NULL"), .fill = fill_name},
    [ROSTER_LIFE] = {PART_SQL("incarnation", "incarnation, pid, NULL, NULL"), .fill = fill_life},
    [ROSTER_STATE] = {PART_SQL("engine_state", "state, since_us, policy_version, reason"),
                      .fill = fill_state},
};

bool spell_take(Spell *spell, int64_t at_us, int64_t t_us)
{
    if (at_us < spell->from_us || at_us >= spell->until_us) {
        return false; /* something newer, or older, holds there; or nothing was read */
    }
    bool holds = at_us <= t_us;
    *(holds ? &spell->from_us : &spell->until_us) = at_us;
    return holds;
}

static void free_members(Roster *roster)
{
    for (size_t i = 0; i < roster->count; i++) {
        free(roster->items[i].name);
        free(roster->items[i].address);
        free(roster->items[i].reason);
    }
    roster->count = 0;
    roster->loaded = false;
}

void roster_free(Roster *roster)
{
    if (roster != NULL) {
        free_members(roster);
        free(roster->items);
    }
    free(roster);
}

static size_t place_of(const Roster *roster, int64_t engine)
{
    if (engine >= 1 && (size_t)engine <= roster->count &&
        roster->items[engine - 1].engine == engine) {
        return (size_t)engine - 1; /* numbers run from 1 on without holes, nearly always */
    }
    size_t from = 0;
    size_t to = roster->count;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        if (roster->items[middle].engine < engine) {
            from = middle + 1;
        } else {
            to = middle;
        }
    }
    return from;
}

static Member *member_of(Roster *roster, int64_t engine)
{
    size_t at = place_of(roster, engine);
    return at < roster->count && roster->items[at].engine == engine ? &roster->items[at] : NULL;
}

static void add_member(Roster *roster, int64_t engine, int64_t first_seen_us)
{
    size_t at = place_of(roster, engine);
    if (roster->count == roster->capacity) {
        roster->capacity = roster->capacity == 0 ? 16 : 2 * roster->capacity;
        roster->items = xrealloc(roster->items, roster->capacity, sizeof *roster->items);
    }
    memmove(&roster->items[at + 1], &roster->items[at],
            (roster->count - at) * sizeof *roster->items);
    roster->items[at] = (Member){.engine = engine, .first_seen_us = first_seen_us};
    roster->count++;
}

/* All engines, with nothing known of them yet; what is in the tables now is read when it is asked
 * for, what comes later is followed. */
static void load_members(View *view, Roster *roster)
{
    static const char next[] = "SELECT min(engine) FROM engine WHERE engine > ?";
    static const char first[] = "SELECT min(t_us) FROM engine WHERE engine = ?";
    free_members(roster);
    for (int p = 0; p < ROSTER_PARTS; p++) {
        roster->newest[p] = view_number(view, view_query(view, parts[p].max, NULL, 0), 0);
    }
    for (int64_t engine = 0; view_good(view) && roster->count < VIEW_ROWS_MAX;) {
        engine = view_number(view, VIEW_QUERY(view, next, engine), -1);
        if (engine < 0) {
            break;
        }
        add_member(roster, engine, view_number(view, VIEW_QUERY(view, first, engine), 0));
    }
    roster->loaded = view_good(view);
}

/* False: more than is worth following. */
static bool pull(View *view, Roster *roster, RosterPart part, int64_t t_us)
{
    int rows = 0;
    sqlite3_stmt *stmt = VIEW_QUERY(view, parts[part].pull, roster->newest[part], PULL_MAX);
    for (; view_next(view, stmt); rows++) {
        int64_t at_us = sqlite3_column_int64(stmt, 0);
        int64_t engine = sqlite3_column_int64(stmt, COLUMN_ENGINE);
        Member *member = member_of(roster, engine);
        if (member == NULL && part == ROSTER_NAME && engine > 0 &&
            roster->count < VIEW_ROWS_MAX) {
            add_member(roster, engine, at_us);
            member = member_of(roster, engine);
        }
        if (member != NULL && spell_take(&member->spells[part], at_us, t_us)) {
            parts[part].fill(member, stmt);
        }
        if (member != NULL && part == ROSTER_NAME && at_us < member->first_seen_us) {
            member->first_seen_us = at_us;
        }
        roster->newest[part] = sqlite3_column_int64(stmt, COLUMN_CHANGE);
    }
    return rows < PULL_MAX;
}

static Roster *up_to_date(View *view, int64_t t_us)
{
    if (view->roster == NULL) {
        view->roster = xcalloc(1, sizeof *view->roster);
    }
    Roster *roster = view->roster;
    if (roster->turn == view->turn) {
        return roster; /* also one that damage makes doubtful: this transaction reads no other */
    }
    int64_t met = view->db.met;
    bool follows = roster->loaded;
    for (RosterPart part = ROSTER_NAME; part < ROSTER_PARTS && follows; part++) {
        follows = pull(view, roster, part, t_us);
    }
    if (!follows) {
        load_members(view, roster);
    }
    roster->loaded = roster->loaded && view->db.met == met;
    roster->turn = view_good(view) ? view->turn : 0; /* a read that was ended goes on later */
    return roster;
}

static void read_part(View *view, Member *member, RosterPart part, int64_t t_us)
{
    const Part *sql = &parts[part];
    int64_t met = view->db.met;
    Spell spell = {INT64_MIN, INT64_MAX};
    sqlite3_stmt *stmt = VIEW_QUERY(view, sql->at, member->engine, t_us);
    bool found = view_next(view, stmt);
    sql->fill(member, found ? stmt : NULL);
    if (found) {
        spell = (Spell){sqlite3_column_int64(stmt, 0), column_i64(stmt, COLUMN_NEXT, INT64_MAX)};
        sqlite3_reset(stmt);
    } else {
        spell.until_us = view_number(view, VIEW_QUERY(view, sql->next, member->engine, t_us),
                                     INT64_MAX);
    }
    bool sure = view_good(view) && view->db.met == met;
    member->spells[part] = sure ? spell : (Spell){0};
}

static void read_member(View *view, Member *member, int64_t t_us, unsigned wanted)
{
    for (RosterPart part = ROSTER_NAME; part < ROSTER_PARTS; part++) {
        const Spell *spell = &member->spells[part];
        bool holds = spell->from_us <= t_us && t_us < spell->until_us;
        if ((wanted & 1U << part) != 0 && !holds) {
            read_part(view, member, part, t_us);
        }
    }
}

const Member *roster_all(View *view, int64_t t_us, unsigned wanted, size_t *count)
{
    Roster *roster = up_to_date(view, t_us);
    for (size_t i = 0; i < roster->count && view_good(view); i++) {
        read_member(view, &roster->items[i], t_us, wanted);
    }
    *count = roster->count;
    return roster->items;
}

const Member *roster_find(View *view, int64_t engine, int64_t t_us, unsigned wanted)
{
    Member *member = member_of(up_to_date(view, t_us), engine);
    if (member != NULL) {
        read_member(view, member, t_us, wanted);
    }
    return member;
}
