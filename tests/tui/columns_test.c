/* Widths of columns: for every room the table stays inside it, what never leaves has its least,
 * and nothing that would like more is cut while cells are free. */
#include "tests/harness.h"
#include "tui/columns.h"

static const Column table[] = {
    {"NAME", 8, 40, false, 0, NULL}, {"STATE", 9, 9, false, 0, NULL},
    {"WAIT", 5, 5, true, COLUMNS_LATE, NULL}, {"PID", 8, 8, true, 2, NULL},
    {"ADDRESS", 18, 48, false, 1, NULL},
};
enum { COUNT = sizeof table / sizeof *table, REST = 29, LEAST = 17 };

static void test_every_room(void)
{
    for (int room = 1; room <= 300; room++) {
        for (int name = 0; name <= 60; name += 4) {
            for (int address = 0; address <= 60; address += 6) {
                int need[COUNT] = {name, 0, 0, 0, address};
                int w[COUNT];
                columns_fit(table, need, COUNT, room, REST, LEAST, w);
                int total = 0;
                for (int i = 0; i < COUNT; i++) {
                    total += w[i];
                    CHECK(w[i] == 0 ? table[i].drop > 0
                                    : w[i] >= table[i].min && w[i] <= table[i].max);
                }
                CHECK(w[0] >= 8 && w[1] == 9);
                if (total > 17) { /* more than what never leaves: the words have their least */
                    CHECK(total + LEAST <= room);
                }
                bool cut = w[0] < (name < 40 ? name : 40);
                CHECK(!cut || total + LEAST >= room);
                bool address_cut = w[4] > 0 && w[4] < (address < 48 ? address : 48);
                CHECK(!address_cut || total + REST >= room);
            }
        }
    }
}

static void test_order(void)
{
    static const struct {
        int room;
        int w[COUNT];
    } cases[] = {
        {77, {8, 9, 5, 8, 18}}, {76, {8, 9, 5, 8, 0}}, {58, {8, 9, 5, 0, 0}},
        {39, {8, 9, 5, 0, 0}},  {38, {8, 9, 0, 0, 0}}, {10, {8, 9, 0, 0, 0}},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int need[COUNT] = {0};
        int w[COUNT];
        columns_fit(table, need, COUNT, cases[k].room, REST, LEAST, w);
        for (int i = 0; i < COUNT; i++) {
            CHECK_I64(w[i], cases[k].w[i]);
        }
    }
}

static void test_growth(void)
{
    int need[COUNT] = {30, 0, 0, 0, 40};
    int w[COUNT];
    columns_fit(table, need, COUNT, 200, REST, LEAST, w);
    CHECK_I64(w[0], 30); /* all that it would like */
    CHECK_I64(w[4], 40);
    columns_fit(table, need, COUNT, 39, REST, LEAST, w);
    CHECK_I64(w[0], 8); /* no cell is free: WAIT and the words have theirs */
    columns_fit(table, need, COUNT, 50, REST, LEAST, w);
    CHECK_I64(w[0], 19); /* the words give what is above their least */
    CHECK_I64(w[2], 5);
}

int main(void)
{
    RUN(test_every_room);
    RUN(test_order);
    RUN(test_growth);
    return test_end();
}
