/* One engine's probes at any moment: newest first, nothing from after T, bounded; and while more of
 * them come. */
#include "tests/harness.h"
#include "tests/store/scene.h"

int main(void)
{
    char *dir = scene_dir();
    char *path = xasprintf("%s/run.db", dir);
    Store *store = NULL;
    View *view = NULL;
    Fault fault = {0};
    Arena *arena = arena_new(1 << 20);
    ProbeRow *rows = NULL;
    CHECK(store_open(path, NULL, &store, &fault) == ERR_OK);
    scene_engines(store);
    for (int i = 0; i < 30; i++) {
        scene_probe(store, 1 + i % 2, 1 + i, 100 * i, i != 28);
    }
    CHECK(store_wait(store, store_ticket(store), 10000, &fault) == ERR_OK);
    CHECK(view_open(path, &view, &fault) == ERR_OK);
    CHECK_I64(view_probes(view, 1, AT(100), 5, arena, &rows), 5);
    CHECK_I64(rows[0].t_us, AT(29));
    CHECK_STR(rows[0].outcome, "http 500");
    CHECK_I64(rows[0].status, 500);
    CHECK(!rows[0].running.known); /* a missing number is not zero */
    CHECK_I64(rows[1].t_us, AT(27));
    CHECK_STR(rows[1].outcome, "ok");
    CHECK_I64(rows[1].kind, PROBE_LOADS);
    CHECK_NEAR(rows[1].running.v, 8, 0);
    CHECK_I64(rows[1].policy_version, 1);
    CHECK_I64(view_probes(view, 2, AT(5), 50, arena, &rows), 2); /* at 2 s and 4 s */
    CHECK_I64(rows[0].t_us, AT(4));
    CHECK_I64(view_probes(view, 9, AT(100), 5, arena, &rows), 0);
    CHECK_I64(view_probes(view, 1, AT(0), 5, arena, &rows), 0);
    for (int i = 0; i < 30; i++) { /* of an engine that was just asked for in vain */
        scene_probe(store, 9, 200 + i, 100 * i, true);
    }
    CHECK(store_wait(store, store_ticket(store), 10000, &fault) == ERR_OK);
    CHECK_I64(view_probes(view, 9, AT(300), 5, arena, &rows), 5);
    CHECK_I64(rows[4].t_us, AT(225));
    CHECK_I64(view_probes(view, 9, AT(300), 20, arena, &rows), 20);
    CHECK_I64(rows[19].t_us, AT(210));
    CHECK_I64(view_probes(view, 9, AT(203), 20, arena, &rows), 4);
    CHECK_I64(view_probes(view, 1, AT(300), 3, arena, &rows), 3);
    CHECK_I64(rows[0].t_us, AT(29));
    view_close(view);
    store_close(store);
    arena_free(arena);
    free(path);
    scene_remove(dir);
    return test_end();
}
