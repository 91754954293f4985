#include "tui/model.h"

#include "core/base/mem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { US = 1000000, EVENT_LIMIT = 200, TAIL_LIMIT = 64, MESSAGE_US = 8 * US };

Model *model_new(const ModelConfig *config)
{
    Model *model = xcalloc(1, sizeof *model);
    model->control = config->control;
    model->replay_only = config->replay;
    model->ascii = config->ascii;
    model->may_stop = config->may_stop;
    model->live = !config->replay;
    model->follow_events = true;
    model->event_limit = EVENT_LIMIT;
    model->w = 80;
    model->h = 24;
    (void)str_format(model->user, sizeof model->user, "%s", config->user ? config->user : "");
    if (config->pid > 0) {
        (void)str_format(model->self, sizeof model->self, "pid %lld", (long long)config->pid);
    } else {
        (void)str_format(model->self, sizeof model->self, "%s", model->user);
    }
    if (config->config) {
        model->config = *config->config;
    } else {
        config_defaults(&model->config);
    }
    (void)str_format(model->log_path, sizeof model->log_path, "%s",
                     config->log_path ? config->log_path : "");
    (void)str_format(model->theme, sizeof model->theme, "%s",
                     config->theme ? config->theme : "dusk");
    return model;
}

void model_free(Model *model)
{
    free(model);
}

bool model_in_replay(const Model *model)
{
    return !model->live;
}

int64_t model_time(const Model *model, int64_t now_us)
{
    if (!model->live) {
        return model->t_us;
    }
    return model->frozen ? model->frozen_us : now_us;
}

LayoutWish model_wish(const Model *model, const Snapshot *snap)
{
    return (LayoutWish){.focus = model->focus, .zoom = model->zoom, .detail = model->depth > 0,
                        .second = model->second,
                        .engines = snap ? snap->engines.count : (size_t)model->order_count};
}

/* A plain word is left to the log, which searches all of it; terms are matched here. */
static const char *event_filter(const Model *model)
{
    const char *filter = model->filter[PANE_EVENTS];
    bool plain = filter[0] != '\0' && strpbrk(filter, " !:<>") == NULL;
    return plain ? filter : NULL;
}

SnapRequest model_request(const Model *model, int64_t now_us)
{
    LayoutWish wish = model_wish(model, NULL);
    Layout layout = layout_solve(model->w, model->h, &wish);
    bool braille = model->config.graph == GRAPH_BRAILLE && !model->ascii; /* two in a cell */
    SnapRequest request = {
        .t_us = model_time(model, now_us),
        .spark_count = (model->w >= 100 ? 28 : 16) * (braille ? 2 : 1),
        .spark_us = model->w >= 180 ? 10 * US : model->w >= 100 ? 2 * US : 4 * US,
        .tail_limit = model->focus == PANE_TAIL || model->filter[PANE_TAIL][0] ? 4 * TAIL_LIMIT
                                                                               : TAIL_LIMIT,
        .event_limit = model->event_limit,
        .event_filter = event_filter(model),
        .step_engines = -1,
        .commands = true,
    };
    const Detail *detail = model->depth > 0 ? &model->detail[model->depth - 1] : NULL;
    request.policies = layout.panes[PANE_POLICIES].w > 0 || detail || model->zoom;
    request.curves = layout.panes[PANE_LEARNING].w > 0;
    if (!model->live || layout.history.w > 0) {
        request.strip_cells = model->w > 60 ? model->w - 28 : 24;
    }
    if (detail) {
        request.detail = detail->kind;
        request.detail_id = detail->id;
        request.step_engines = detail->kind == DETAIL_STEP ? detail->id : -1;
    } else if (layout.detail_side && model->cursor[PANE_ENGINES].set) {
        request.detail = DETAIL_ENGINE;
        request.detail_id = model->cursor[PANE_ENGINES].id;
    }
    return request;
}

unsigned model_resize(Model *model, int w, int h)
{
    model->w = w < 1 ? 1 : w > SURFACE_W_MAX ? SURFACE_W_MAX : w;
    model->h = h < 1 ? 1 : h > SURFACE_H_MAX ? SURFACE_H_MAX : h;
    return MODEL_DRAW | MODEL_QUERY;
}

void model_say(Model *model, Role role, int64_t now_us, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(model->message, sizeof model->message, format, args);
    va_end(args);
    if (n < 0) {
        model->message[0] = '\0';
    }
    model->message_role = role;
    model->message_until_us = now_us + MESSAGE_US;
}

/* Once per critical alert, never per refresh, and never for the past. */
static unsigned ring(Model *model, const Snapshot *snap)
{
    int64_t newest = model->rung;
    for (size_t i = 0; i < snap->alerts.count && model->live; i++) {
        const AlertRow *row = &snap->alerts.rows[i];
        bool crit = row->severity == SEVERITY_CRIT && row->ended_us == 0;
        newest = crit && row->incident > newest ? row->incident : newest;
    }
    bool first = model->rung == 0 && !model->observed; /* what was open before we looked */
    bool rings = newest > model->rung && !first;
    model->rung = newest;
    model->observed = model->observed || snap->ready;
    return rings ? MODEL_BELL : 0;
}

unsigned model_observe(Model *model, const Snapshot *snap, int64_t now_us)
{
    model->now_us = now_us;
    model->ended = snap->ready && snap->run.first_us > 0 && !snap->run.core_alive;
    model_order(model, snap);
    mark_observe(model, snap);
    model_lists(model, snap);
    return MODEL_DRAW | ring(model, snap) | act_observe(model, snap, now_us);
}

static int64_t clamp_time(const Snapshot *snap, int64_t t_us)
{
    if (snap->run.first_us > 0 && t_us < snap->run.first_us) {
        return snap->run.first_us;
    }
    if (snap->run.last_us > 0 && t_us > snap->run.last_us) {
        return snap->run.last_us;
    }
    return t_us;
}

/* Leaves live: from here on time stands until it is moved. */
static unsigned enter_replay(Model *model, const Snapshot *snap, int64_t t_us)
{
    if (model->mode == MODE_CONFIRM) {
        model->mode = MODE_NORMAL;
    }
    model->live = false;
    model->frozen = false;
    model->t_us = clamp_time(snap, t_us);
    return MODEL_DRAW | MODEL_QUERY;
}

unsigned model_seek_done(Model *model, const Snapshot *snap, bool found, int64_t t_us,
                         int64_t now_us)
{
    static const char *const marks[] = {"step", "alert", "policy version", "probe"};
    const Seek *seek = &model->seek;
    if (found) {
        return enter_replay(model, snap, t_us);
    }
    switch (seek->kind) {
    case SEEK_MARK:
        model_say(model, ROLE_INFO, now_us, "no %s %s this moment in the log%s",
                  marks[seek->mark], seek->dir < 0 ? "before" : "after",
                  seek->dir > 0 && !model->replay_only ? "; End returns to live" : "");
        break;
    case SEEK_STEP:
        model_say(model, ROLE_WARN, now_us, "step %lld is not in this log; 3 lists the steps",
                  (long long)seek->value);
        break;
    case SEEK_POLICY:
        model_say(model, ROLE_WARN, now_us, "version v%lld is not in this log; 5 lists them",
                  (long long)seek->value);
        break;
    case SEEK_TEXT:
        model_say(model, ROLE_WARN, now_us, "no event before this moment has '%s' in it",
                  seek->text);
        break;
    case SEEK_TIME: break;
    }
    return MODEL_DRAW;
}

unsigned model_go(Model *model, const Snapshot *snap, Str text, int64_t now_us)
{
    if (!time_parse(text, model_time(model, now_us), snap->run.first_us, snap->run.last_us,
                    &model->seek)) {
        model_say(model, ROLE_WARN, now_us,
                  "write a moment: 10:41, -5m, 4126 (step), v210 (version), or a word to find");
        return MODEL_DRAW;
    }
    if (model->seek.kind == SEEK_TIME) {
        return enter_replay(model, snap, model->seek.value);
    }
    return MODEL_SEEK;
}

static unsigned advance_playback(Model *model, const Snapshot *snap, int64_t now_us)
{
    int64_t passed = now_us - model->played_at_us;
    model->played_at_us = now_us;
    if (!model->playing || model->live || passed <= 0 || passed > 10 * (int64_t)US) {
        return 0;
    }
    model->t_us += (int64_t)((double)passed * ldexp(1.0, model->speed_shift));
    if (snap->run.last_us > 0 && model->t_us >= snap->run.last_us) {
        model->t_us = snap->run.last_us;
        model->playing = false;
        model_say(model, ROLE_INFO, now_us, "end of the log%s",
                  model->replay_only ? "" : "; End returns to live");
    }
    return MODEL_DRAW | MODEL_QUERY;
}

unsigned model_tick(Model *model, const Snapshot *snap, int64_t now_us)
{
    unsigned flags = advance_playback(model, snap, now_us) | act_tick(model, now_us);
    model->now_us = now_us;
    if (model->message[0] && now_us > model->message_until_us) {
        model->message[0] = '\0';
        flags |= MODEL_DRAW;
    }
    if (model->armed_until_us > 0 && now_us > model->armed_until_us) {
        model->armed_until_us = 0;
        model_say(model, ROLE_INFO, now_us, "no longer armed");
        flags |= MODEL_DRAW;
    }
    return flags;
}
