/* The console on a log file without a terminal: keys in, a picture out, at any size. The same
 * pieces in the same order as tui.c, whose terminal, socket and clock are left out. */
#ifndef ROLLTOP_TESTS_TUI_PLAYER_H
#define ROLLTOP_TESTS_TUI_PLAYER_H

#include "tests/zst.h"
#include "tui/screen.h"
#include "tui/seek.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLAYER_KEY_US = 400000 };

typedef struct Player {
    View *view;
    Model *model;
    Arena *arena, *scratch;
    Snapshot snap;
    Surface *surface;
    int64_t now_us; /* wall time: moves with each key */
    char path[64];  /* the unpacked log */
} Player;

static inline void player_read(Player *p)
{
    SnapRequest request = model_request(p->model, p->now_us);
    (void)snapshot_read(p->view, &request, p->arena, &p->snap);
    p->snap.read_us = 1000; /* is shown; what it was here is nobody's business */
    (void)model_observe(p->model, &p->snap, p->now_us);
}

static inline void player_obey(Player *p, unsigned flags)
{
    if (flags & MODEL_SEEK) {
        int64_t found_us = 0;
        bool found = seek_find(p->view, p->scratch, &p->model->seek,
                               model_time(p->model, p->now_us), p->snap.run.last_us, &found_us);
        flags |= model_seek_done(p->model, &p->snap, found, found_us, p->now_us);
    }
    if (flags & MODEL_QUERY) {
        player_read(p);
    }
}

/* '\n' is Enter, '\x1b' is Esc, '\t' is Tab. */
static inline void player_keys(Player *p, const char *keys)
{
    for (; *keys; keys++) {
        int key = *keys == '\n' ? TK_ENTER : *keys == '\t' ? TK_TAB : *keys == '\x1b' ? TK_ESC
                                                                                      : *keys;
        p->now_us += PLAYER_KEY_US;
        player_obey(p, model_key(p->model, &p->snap, key, p->now_us));
    }
}

static inline void player_go(Player *p, int64_t t_us)
{
    player_obey(p, model_seek_done(p->model, &p->snap, true, t_us, p->now_us));
}

static inline void player_size(Player *p, int w, int h, bool ascii)
{
    surface_free(p->surface);
    p->surface = surface_new(w, h, ascii);
    player_obey(p, model_resize(p->model, w, h));
}

static inline void player_draw(Player *p)
{
    screen_draw(p->model, &p->snap, p->now_us, p->surface);
}

/* Unpacks DATA/name and opens it as `rolltop replay` does: at its end, at 80x24. */
static inline bool player_open(Player *p, const char *name)
{
    Text log;
    Fault fault = {0};
    RunView about = {0};
    memset(p, 0, sizeof *p);
    text_init(&log, 64 << 20);
    (void)snprintf(p->path, sizeof p->path, "/tmp/rolltop-player-XXXXXX");
    int fd = mkstemp(p->path);
    bool good = fd >= 0 && zst_read(name, &log) &&
                fs_write_atomic(p->path, log.p, log.n, &fault) == ERR_OK &&
                view_open(p->path, &p->view, &fault) == ERR_OK;
    if (fd >= 0) {
        close(fd);
    }
    text_free(&log);
    if (!good) {
        fprintf(stderr, "%s: %s\n", name, fault.sentence);
        return false;
    }
    p->arena = arena_new(SNAP_ARENA_MAX);
    p->scratch = arena_new(SNAP_ARENA_MAX);
    (void)view_run(p->view, p->scratch, &about);
    ModelConfig config = {.replay = true, .user = "ana", .log_path = "incident.db",
                          .theme = "dusk"};
    p->model = model_new(&config);
    p->model->t_us = about.last_us;
    p->now_us = about.last_us + 1000000;
    player_size(p, 80, 24, false);
    return true;
}

static inline void player_close(Player *p)
{
    surface_free(p->surface);
    model_free(p->model);
    arena_free(p->arena);
    arena_free(p->scratch);
    view_close(p->view);
    (void)unlink(p->path);
}

#endif
