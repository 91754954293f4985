#include "tui/columns.h"

#include <string.h>

enum { WIDEST = 400 }; /* no screen has more cells */

void columns_need(int *need, const char *text)
{
    size_t n = text ? strlen(text) : 0;
    int cells = n >= WIDEST ? WIDEST : (int)n + 1;
    *need = cells > *need ? cells : *need;
}

static int min_int(int a, int b)
{
    return a < b ? a : b;
}

static void grow(const Column *columns, const int *need, int count, bool lasting, int *free,
                 int *widths)
{
    for (int i = 0; i < count && *free > 0; i++) {
        int more = min_int(need[i], columns[i].max) - widths[i];
        if (widths[i] > 0 && more > 0 && (!lasting || columns[i].drop == 0)) {
            more = min_int(more, *free);
            widths[i] += more;
            *free -= more;
        }
    }
}

void columns_fit(const Column *columns, const int *need, int count, int room, int rest, int least,
                 int *widths)
{
    int total = 0;
    int last = 0;
    for (int i = 0; i < count; i++) {
        total += widths[i] = columns[i].min;
        last = columns[i].drop > last ? columns[i].drop : last;
    }
    for (int drop = 1; drop <= last; drop++) {
        if (total + (drop >= COLUMNS_LATE ? min_int(rest, least) : rest) <= room) {
            break;
        }
        for (int i = 0; i < count; i++) {
            if (columns[i].drop == drop) {
                total -= widths[i];
                widths[i] = 0;
            }
        }
    }
    int free = room - total - rest;
    grow(columns, need, count, false, &free, widths);
    free = free < 0 ? 0 : free;
    total = 0;
    for (int i = 0; i < count; i++) {
        total += widths[i];
    }
    free = room - total - min_int(rest, least);
    grow(columns, need, count, true, &free, widths);
}
