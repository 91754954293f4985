/* A log that is written and looked at by one test: opened anew, filled, and thrown away with the
 * view's word that nothing failed. */
#ifndef ROLLTOP_TESTS_STORE_VIEW_LOG_H
#define ROLLTOP_TESTS_STORE_VIEW_LOG_H

#include "tests/harness.h"
#include "tests/store/scene.h"

static char *dir, *path;
static Arena *arena;
static Store *store;
static View *view;

static inline void fresh(void)
{
    Fault fault = {0};
    dir = scene_dir();
    path = xasprintf("%s/run.db", dir);
    arena = arena_new(64 << 20);
    CHECK_I64(store_open(path, NULL, &store, &fault), ERR_OK);
    scene_run(store);
    CHECK_I64(store_wait(store, store_ticket(store), 5000, &fault), ERR_OK);
    CHECK_I64(view_open(path, &view, &fault), ERR_OK);
}

static inline void flush(void)
{
    Fault fault = {0};
    CHECK_I64(store_wait(store, store_ticket(store), 5000, &fault), ERR_OK);
}

static inline void gone(void)
{
    Fault fault = {0};
    CHECK_I64(view_fault(view, &fault), ERR_OK);
    CHECK_STR(fault.sentence, "");
    view_close(view);
    store_close(store);
    free(path);
    scene_remove(dir);
    arena_free(arena);
}

#endif
