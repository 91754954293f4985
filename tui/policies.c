/* Policy versions and the transactions that brought them: which engine holds which, since when. */
#include "tui/screen.h"

#include <string.h>

enum { NARROW = 76 }; /* below it bytes and digest give way to the reason */

static Role policy_role(PolicyState state)
{
    switch (state) {
    case POLICY_PUBLISHED: return ROLE_PROGRESS;
    case POLICY_REJECTED: return ROLE_CRIT;
    case POLICY_APPLYING: return ROLE_PROGRESS;
    case POLICY_COMMITTED: return ROLE_OK;
    case POLICY_ROLLED_BACK: return ROLE_WARN;
    case POLICY_RETIRED: return ROLE_DIM;
    }
    return ROLE_TEXT;
}

/* "v211 14 engines, v210 2 engines": what serves at this moment, by the last verified word. */
static void draw_spread(const Draw *d, int y, const Screen *screen)
{
    const Snapshot *s = screen->s;
    SegmentLine line = {.count = 0};
    char a[FORMAT_MAX];
    int64_t seen[8];
    int count[8];
    int kinds = 0;
    for (size_t i = 0; i < s->engines.count; i++) {
        const EngineRow *row = &s->engines.rows[i];
        int k = 0;
        while (k < kinds && seen[k] != row->policy_version) {
            k++;
        }
        if (k == kinds && kinds < 8) {
            seen[kinds] = row->policy_version;
            count[kinds++] = 0;
        }
        if (k < kinds && row->state != ENGINE_GONE) {
            count[k]++;
        }
    }
    segment_add(&line, 0, kinds > 1 ? ROLE_WARN : ROLE_TEXT, "engines hold:");
    for (int k = 0; k < kinds; k++) {
        bool current = seen[k] == s->header.policy_version;
        segment_add(&line, k, current ? ROLE_OK : ROLE_WARN, "%s on %d",
                    seen[k] < 0 ? "unknown" : format_version(seen[k], a), count[k]);
    }
    if (s->header.trainer_version > s->header.policy_version) {
        segment_add(&line, 9, ROLE_PROGRESS, "trainer has %s",
                    format_version(s->header.trainer_version, a));
    }
    (void)segment_draw(d, y, d->r.w, 2, &line);
}

static void draw_policy(const Draw *d, int y, const Screen *screen, const PolicyRow *row,
                        bool cursor)
{
    char a[FORMAT_MAX];
    int64_t t = screen->s->t_us;
    draw_text(d, 0, y, ROLE_KEY, cursor ? ">" : "");
    draw_text(d, 1, y, ROLE_MARKED, mark_has(screen->m, PANE_POLICIES, row->version) ? "*" : "");
    draw_field(d, 2, y, 6, false, ROLE_TEXT, format_version(row->version, a));
    draw_field(d, 9, y, 11, false, policy_role(row->state), policy_state_name(row->state));
    (void)str_format(a, sizeof a, "%lld", (long long)row->step);
    draw_field(d, 20, y, 6, true, ROLE_TEXT, row->step >= 0 ? a : "-");
    draw_field(d, 26, y, 8, true, ROLE_TEXT,
               row->published_us > 0 ? format_age(t - row->published_us, a) : "-");
    (void)str_format(a, sizeof a, "%lld", (long long)row->engines);
    draw_field(d, 34, y, 5, true, ROLE_TEXT, a);
    int x = 40;
    if (d->r.w >= NARROW) {
        draw_field(d, 39, y, 8, true, ROLE_TEXT, format_count((double)row->bytes, a));
        draw_f(d, 49, y, ROLE_DIM, "%.8s", or_dash(row->digest));
        x = 58;
    }
    draw_text(d, x, y, row->reason ? policy_role(row->state) : ROLE_DIM,
              row->reason && row->reason[0] ? row->reason : or_dash(row->kind));
}

static void draw_txn(const Draw *d, int y, const Screen *screen, const TxnRow *row)
{
    char a[FORMAT_MAX];
    char b[FORMAT_MAX];
    int64_t end = row->ended_us > 0 ? row->ended_us : screen->s->t_us;
    bool good = row->outcome && strcmp(row->outcome, "committed") == 0;
    int x = draw_f(d, 0, y, ROLE_DIM, "%s ", format_clock(row->started_us, a));
    x += draw_f(d, x, y, ROLE_TEXT, "%s > %s ", format_version(row->from_version, a),
                format_version(row->to_version, b));
    x += draw_f(d, x, y, good ? ROLE_OK : row->outcome ? ROLE_CRIT : ROLE_PROGRESS, "%s ",
                row->outcome ? row->outcome
                : row->decided == 1 ? "decided: commit"
                : row->decided == 0 ? "decided: roll back" : "under way");
    x += draw_f(d, x, y, ROLE_TEXT, "in %s, %lld engines, gate shut %s  ",
                format_took(end - row->started_us, a), (long long)row->engines,
                format_took(row->pause_us, b));
    draw_text(d, x, y, ROLE_DIM, row->decision_reason && row->decision_reason[0]
              ? row->decision_reason : row->why);
}

void policies_draw(const Draw *d, const Screen *screen)
{
    const Model *m = screen->m;
    const Snapshot *s = screen->s;
    char right[64];
    int count = m->shown_count[PANE_POLICIES];
    (void)str_format(right, sizeof right, "%d of %d, newest first", count,
                     (int)s->policies.total);
    Draw body = pane_frame(d, screen, PANE_POLICIES, "POLICIES", right);
    draw_spread(&body, 0, screen);
    draw_text(&body, 2, 1, ROLE_DIM, body.r.w >= NARROW
              ? "POLICY STATE        STEP     AGE  ENG   BYTES  DIGEST   WHY"
              : "POLICY STATE        STEP     AGE  ENG WHY");
    draw_sort_title(&body, 9, 1, 11, PANE_POLICIES, "state");
    draw_sort_title(&body, 26, 1, 8, PANE_POLICIES, "newest");
    draw_sort_title(&body, 34, 1, 5, PANE_POLICIES, "engines");
    if (count == 0) {
        draw_text(&body, 2, 2, ROLE_DIM, s->loading ? "loading" : s->policies.total > 0
                  ? "no version matches the filter; Esc clears it"
                  : "no policy version was published up to this moment");
        return;
    }
    int txns = body.r.h >= 9 ? (body.r.h - 3) / 3 : 0;
    txns = txns > (int)s->txns.count ? (int)s->txns.count : txns;
    int rows = body.r.h - 2 - (txns > 0 ? txns + 1 : 0);
    int place = model_place(m, s, PANE_POLICIES);
    int top = scroll_top(place, count, rows);
    for (int i = 0; i < rows && top + i < count; i++) {
        bool cursor = top + i == place && m->focus == PANE_POLICIES;
        draw_hit(&body, 0, 2 + i, body.r.w, HIT_ROW, PANE_POLICIES, top + i);
        draw_policy(&body, 2 + i, screen, &s->policies.rows[m->shown[PANE_POLICIES][top + i]],
                    cursor);
        if (cursor) {
            draw_flag_row(&body, 2 + i, CELL_SELECTED);
            surface_cursor(body.surface, body.r.x, body.r.y + 2 + i);
        }
    }
    if (txns > 0) {
        int y = body.r.h - txns - 1;
        draw_f(&body, 0, y, ROLE_DIM, "last updates (%d of %d)", txns, (int)s->txns.total);
        for (int i = 0; i < txns; i++) {
            draw_txn(&body, y + 1 + i, screen, &s->txns.rows[i]);
        }
    }
}
