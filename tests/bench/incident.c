/* Replay of the recorded incident, all panes at 200x60: the first picture from the closed file,
 * then a jump to every second of it in an order without sense, each read, ordered and drawn.
 *   bench_incident              from the top of the source tree; the log is unpacked first
 * The floor is the same number of rows taken from the same file by bare SQLite statements: what
 * the screens show, without views, model and cells. */
#define ROLLTOP_TEST_DATA "tests/data"
#include "core/base/clock.h"
#include "tests/tui/player.h"

#include <sqlite3.h>

enum { SIZE_W = 200, SIZE_H = 60, ROUNDS = 20, JUMPS_MAX = 4096 };

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t bare_rows(sqlite3 *db, int64_t t_us)
{
    static const char *const lists[] = {
        "SELECT * FROM event WHERE t_us <= ? ORDER BY t_us DESC LIMIT 200",
        "SELECT * FROM step WHERE started_us <= ? ORDER BY started_us DESC LIMIT 24",
        "SELECT * FROM policy WHERE t_us <= ? ORDER BY t_us DESC LIMIT 64",
        "SELECT * FROM command WHERE t_us <= ? ORDER BY change_id DESC LIMIT 100",
        "SELECT * FROM incident WHERE onset_us <= ? ORDER BY onset_us DESC LIMIT 64",
        "SELECT * FROM probe WHERE t_us <= ? ORDER BY probe_id DESC LIMIT 40"};
    int64_t bytes = 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        sqlite3_stmt *stmt = NULL;
        if (sqlite3_prepare_v2(db, lists[i], -1, &stmt, NULL) == SQLITE_OK) {
            sqlite3_bind_int64(stmt, 1, t_us);
            while (sqlite3_step(stmt) == SQLITE_ROW) {
                for (int c = 0; c < sqlite3_column_count(stmt); c++) {
                    bytes += sqlite3_column_bytes(stmt, c);
                }
            }
        }
        sqlite3_finalize(stmt);
    }
    return bytes;
}

int main(void)
{
    static int64_t took[JUMPS_MAX];
    static int64_t bare[JUMPS_MAX];
    Player p;
    sqlite3 *db = NULL;
    if (!player_open(&p, "incident.db.zst") || sqlite3_open(p.path, &db) != SQLITE_OK) {
        fprintf(stderr, "run it from the top of the source tree\n");
        return 1;
    }
    int64_t first_us = INT64_MAX;
    for (int i = 0; i < ROUNDS; i++) {
        Fault fault = {0};
        view_close(p.view);
        int64_t began = clock_mono_us();
        if (view_open(p.path, &p.view, &fault) != ERR_OK) {
            fault_print(&fault);
            return 1;
        }
        player_size(&p, SIZE_W, SIZE_H, false);
        player_draw(&p);
        int64_t now = clock_mono_us() - began;
        first_us = now < first_us ? now : first_us;
    }
    int64_t seconds = (p.snap.run.last_us - p.snap.run.first_us) / 1000000;
    int jumps = 0;
    int64_t bytes = 0;
    for (; jumps < JUMPS_MAX && jumps < ROUNDS * seconds; jumps++) {
        int64_t t = p.snap.run.first_us + (jumps * 37 % seconds) * 1000000;
        int64_t began = clock_mono_us();
        player_go(&p, t);
        player_draw(&p);
        took[jumps] = clock_mono_us() - began;
        began = clock_mono_us();
        bytes += bare_rows(db, t);
        bare[jumps] = clock_mono_us() - began;
    }
    qsort(took, (size_t)jumps, sizeof *took, by_value);
    qsort(bare, (size_t)jumps, sizeof *bare, by_value);
    printf("first picture %.2f ms (best of %d)\n", (double)first_us / 1000, ROUNDS);
    printf("jump p50 %.2f ms  p99 %.2f ms  of %d\n", (double)took[jumps / 2] / 1000,
           (double)took[jumps * 99 / 100] / 1000, jumps);
    printf("bare rows p50 %.2f ms  (%lld bytes a jump)\n", (double)bare[jumps / 2] / 1000,
           (long long)(bytes / jumps));
    sqlite3_close(db);
    player_close(&p);
    return 0;
}
