/* Motions of the moment that is shown: pairs of keys, play, freeze, back to live. */
#include "tui/model.h"

enum { US = 1000000, TEN_MINUTES_S = 600 };
enum { SLOWEST = -2, FASTEST = 6 }; /* powers of 2: a quarter of the pace, 64 times it */

static unsigned seek_mark(Model *model, ViewMark mark, int dir, int64_t now_us)
{
    if (model->live && dir > 0) {
        model_say(model, ROLE_INFO, now_us, "this is live already");
        return MODEL_DRAW;
    }
    model->seek = (Seek){.kind = SEEK_MARK, .mark = mark, .dir = dir};
    return MODEL_SEEK;
}

static unsigned go_live(Model *model, const Snapshot *snap)
{
    model->playing = false;
    model->frozen = false;
    if (model->replay_only) {
        model->t_us = snap->run.last_us;
    } else {
        model->live = true;
    }
    return MODEL_DRAW | MODEL_QUERY;
}

static unsigned shift_time(Model *model, const Snapshot *snap, int64_t delta_us, int64_t now_us)
{
    char text[32];
    (void)str_format(text, sizeof text, "%+llds", (long long)(delta_us / US));
    return model_go(model, snap, str_from(text), now_us);
}

static unsigned play(Model *model, int64_t now_us)
{
    if (model->live) {
        model_say(model, ROLE_INFO, now_us, "this is live; [ or @ goes to the past");
        return MODEL_DRAW;
    }
    model->playing = !model->playing;
    model->played_at_us = now_us;
    return MODEL_DRAW;
}

static unsigned change_speed(Model *model, int delta)
{
    int to = model->speed_shift + delta;
    model->speed_shift = to < SLOWEST ? SLOWEST : to > FASTEST ? FASTEST : to;
    return MODEL_DRAW;
}

unsigned travel_freeze(Model *model, int64_t now_us)
{
    if (model->live) {
        model->frozen = !model->frozen;
        model->frozen_us = now_us;
    }
    return MODEL_DRAW | MODEL_QUERY;
}

unsigned travel_run(Model *model, const Snapshot *snap, Action action, int64_t now_us)
{
    int64_t ten = TEN_MINUTES_S * (int64_t)US;
    switch ((int)action) {
    case ACT_STEP_PREV: return seek_mark(model, MARK_STEP, -1, now_us);
    case ACT_STEP_NEXT: return seek_mark(model, MARK_STEP, 1, now_us);
    case ACT_ALERT_PREV: return seek_mark(model, MARK_ALERT, -1, now_us);
    case ACT_ALERT_NEXT: return seek_mark(model, MARK_ALERT, 1, now_us);
    case ACT_POLICY_PREV: return seek_mark(model, MARK_POLICY, -1, now_us);
    case ACT_POLICY_NEXT: return seek_mark(model, MARK_POLICY, 1, now_us);
    case ACT_PROBE_PREV: return seek_mark(model, MARK_PROBE, -1, now_us);
    case ACT_PROBE_NEXT: return seek_mark(model, MARK_PROBE, 1, now_us);
    case ACT_TIME_BACK: return shift_time(model, snap, -ten, now_us);
    case ACT_TIME_ON: return model->live ? 0 : shift_time(model, snap, ten, now_us);
    case ACT_TIME_FIRST: return model_seek_done(model, snap, true, snap->run.first_us, now_us);
    case ACT_TIME_LIVE: return go_live(model, snap);
    case ACT_GO_TIME: return typing_start(model, MODE_GO, "");
    case ACT_PLAY: return play(model, now_us);
    case ACT_FASTER: return change_speed(model, 1);
    case ACT_SLOWER: return change_speed(model, -1);
    case ACT_BOOKMARK: return typing_start(model, MODE_BOOKMARK, "");
    case ACT_BOOKMARKS: return moments_open(model, now_us);
    }
    return 0;
}
