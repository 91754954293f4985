/* A small terminal: takes what a program writes and keeps the screen it would show. Knows what
 * ncurses sends for xterm, tmux, screen, linux and vt100; anything else is counted as unknown. */
#ifndef ROLLTOP_TESTS_TUI_VT_H
#define ROLLTOP_TESTS_TUI_VT_H

#include "core/base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

enum { VT_W = 200, VT_H = 60, VT_ARGS = 16 };

typedef struct Vt {
    int w, h, x, y;
    uint32_t cells[VT_H][VT_W];
    uint32_t last; /* for REP */
    bool alternate, mouse, hidden, wrap;
    int top, bottom; /* scrolling region */
    long colours, unknown, ready, copies, titles, bells;
    char pending[128 * 1024];
    size_t n;
} Vt;

static inline void vt_clear(Vt *vt, int y0, int x0, int y1, int x1) /* from, to (last included) */
{
    for (int y = y0; y <= y1 && y < vt->h; y++) {
        for (int x = y == y0 ? x0 : 0; x <= (y == y1 ? x1 : vt->w - 1) && x < vt->w; x++) {
            vt->cells[y][x] = ' ';
        }
    }
}

static inline void vt_size(Vt *vt, int w, int h)
{
    vt->w = w;
    vt->h = h;
    vt->x = vt->y = 0;
    vt->top = 0;
    vt->bottom = h - 1;
    vt_clear(vt, 0, 0, h - 1, w - 1);
}

static inline void vt_scroll(Vt *vt, int from, int n) /* n rows up (below zero: down) */
{
    int rows = vt->bottom - from + 1;
    if (from < 0 || rows < 1 || vt->bottom >= VT_H) {
        return;
    }
    n = n > rows ? rows : n < -rows ? -rows : n;
    int keep = rows - abs(n);
    if (n > 0) {
        memmove(vt->cells[from], vt->cells[from + n], (size_t)keep * sizeof vt->cells[0]);
        vt_clear(vt, from + keep, 0, vt->bottom, vt->w - 1);
    } else if (n < 0) {
        memmove(vt->cells[from - n], vt->cells[from], (size_t)keep * sizeof vt->cells[0]);
        vt_clear(vt, from, 0, from - n - 1, vt->w - 1);
    }
}

static inline void vt_line_feed(Vt *vt)
{
    if (vt->y == vt->bottom) {
        vt_scroll(vt, vt->top, 1);
    } else if (vt->y < vt->h - 1) {
        vt->y++;
    }
}

static inline void vt_put(Vt *vt, uint32_t code)
{
    int width = code < 0x80 ? 1 : wcwidth((wchar_t)code);
    if (width == 0) {
        return;
    }
    if (vt->wrap && vt->x >= vt->w - 1) {
        vt->x = 0;
        vt_line_feed(vt);
    }
    vt->wrap = false;
    vt->cells[vt->y][vt->x] = code;
    if (width == 2 && vt->x + 1 < vt->w) {
        vt->cells[vt->y][vt->x + 1] = 0;
    }
    vt->last = code;
    if (vt->x + width < vt->w) {
        vt->x += width;
    } else {
        vt->wrap = true;
    }
}

static inline void vt_mode(Vt *vt, const int *args, int count, bool on)
{
    for (int i = 0; i < count; i++) {
        if (args[i] == 1049 || args[i] == 47 || args[i] == 1047) {
            vt->alternate = on;
        } else if (args[i] == 1000 || args[i] == 1002 || args[i] == 1003) {
            vt->mouse = on;
        } else if (args[i] == 25) {
            vt->hidden = !on;
        }
    }
}

static inline void vt_sgr(Vt *vt, const int *args, int count)
{
    for (int i = 0; i < count; i++) {
        int a = args[i];
        bool colour = (a >= 30 && a <= 38) || (a >= 40 && a <= 48) || (a >= 90 && a <= 107);
        vt->colours += colour ? 1 : 0;
        i += colour && (a == 38 || a == 48) && i + 1 < count ? (args[i + 1] == 5 ? 2 : 4) : 0;
    }
}

static inline void vt_shift(Vt *vt, int n) /* n blanks in, or -n characters out, at the cursor */
{
    uint32_t *row = vt->cells[vt->y];
    int rest = vt->w - vt->x;
    int k = abs(n) > rest ? rest : abs(n);
    if (n > 0) {
        memmove(row + vt->x + k, row + vt->x, (size_t)(rest - k) * sizeof *row);
        vt_clear(vt, vt->y, vt->x, vt->y, vt->x + k - 1);
    } else {
        memmove(row + vt->x, row + vt->x + k, (size_t)(rest - k) * sizeof *row);
        vt_clear(vt, vt->y, vt->w - k, vt->y, vt->w - 1);
    }
}

static inline void vt_move(Vt *vt, int y, int x)
{
    vt->y = y < 0 ? 0 : y >= vt->h ? vt->h - 1 : y;
    vt->x = x < 0 ? 0 : x >= vt->w ? vt->w - 1 : x;
    vt->wrap = false;
}

static inline void vt_erase(Vt *vt, char what, int kind)
{
    int last_y = what == 'J' ? vt->h - 1 : vt->y;
    int first_y = what == 'J' ? 0 : vt->y;
    if (kind == 0) {
        vt_clear(vt, vt->y, vt->x, last_y, vt->w - 1);
    } else if (kind == 1) {
        vt_clear(vt, first_y, 0, vt->y, vt->x);
    } else {
        vt_clear(vt, first_y, 0, last_y, vt->w - 1);
    }
}

static inline void vt_csi(Vt *vt, bool private, const int *args, int count, char final)
{
    int n = count > 0 && args[0] > 0 ? args[0] : 1;
    switch (final) {
    case 'H':
    case 'f': vt_move(vt, n - 1, count > 1 && args[1] > 0 ? args[1] - 1 : 0); break;
    case 'A': vt_move(vt, vt->y - n, vt->x); break;
    case 'B': vt_move(vt, vt->y + n, vt->x); break;
    case 'C': vt_move(vt, vt->y, vt->x + n); break;
    case 'D': vt_move(vt, vt->y, vt->x - n); break;
    case 'G': vt_move(vt, vt->y, n - 1); break;
    case 'd': vt_move(vt, n - 1, vt->x); break;
    case 'J':
    case 'K': vt_erase(vt, final, count > 0 ? args[0] : 0); break;
    case 'X': vt_clear(vt, vt->y, vt->x, vt->y, vt->x + n - 1); break;
    case '@': vt_shift(vt, n); break;
    case 'P': vt_shift(vt, -n); break;
    case 'L': vt_scroll(vt, vt->y, -n); break;
    case 'M': vt_scroll(vt, vt->y, n); break;
    case 'S': vt_scroll(vt, vt->top, n); break;
    case 'T': vt_scroll(vt, vt->top, -n); break;
    case 'b':
        for (int i = 0; i < n; i++) {
            vt_put(vt, vt->last);
        }
        break;
    case 'r':
        vt->top = n - 1;
        vt->bottom = count > 1 && args[1] > 0 ? args[1] - 1 : vt->h - 1;
        vt_move(vt, 0, 0);
        break;
    case 'm': vt_sgr(vt, args, count); break;
    case 'h':
    case 'l':
        if (private) {
            vt_mode(vt, args, count, final == 'h');
        }
        break;
    case 'c':
    case 'n':
    case 't':
    case 'q': break;
    default: vt->unknown++;
    }
}

/* One sequence that starts with ESC; bytes used, 0 when more must come. */
static inline size_t vt_escape(Vt *vt, const char *p, size_t n)
{
    if (n < 2) {
        return 0;
    }
    if (p[1] == ']' || p[1] == 'P') { /* to BEL or ST */
        for (size_t i = 2; i < n; i++) {
            if (p[i] == '\a' || (p[i] == '\\' && p[i - 1] == 27)) {
                vt->ready += n > 9 && memcmp(p + 2, "777;ready", 9) == 0;
                vt->copies += memcmp(p + 2, "52;", 3) == 0;
                vt->titles += p[2] == '0' || p[2] == '2';
                return i + 1;
            }
        }
        return 0;
    }
    if (p[1] == '(' || p[1] == ')' || p[1] == '#') {
        return n < 3 ? 0 : 3;
    }
    if (p[1] != '[') {
        if (p[1] == 'M' && vt->y == vt->top) {
            vt_scroll(vt, vt->top, -1);
        } else if (p[1] == 'M') {
            vt_move(vt, vt->y - 1, vt->x);
        } else if (p[1] == 'c') {
            vt_clear(vt, 0, 0, vt->h - 1, vt->w - 1);
        } else if (!strchr("78=>DEH", p[1])) {
            vt->unknown++;
        }
        return 2;
    }
    int args[VT_ARGS] = {0};
    int count = 0;
    bool digits = false;
    for (size_t i = 2; i < n; i++) {
        char c = p[i];
        if (c >= '0' && c <= '9' && count < VT_ARGS) {
            args[count] = args[count] * 10 + c - '0';
            digits = true;
        } else if ((c == ';' || c == ':') && count < VT_ARGS - 1) {
            count++;
            digits = true;
        } else if (c >= '@' && c <= '~') {
            vt_csi(vt, p[2] == '?' || p[2] == '>', args, digits ? count + 1 : 0, c);
            return i + 1;
        }
    }
    return 0;
}

static inline size_t vt_step(Vt *vt, const char *p, size_t n)
{
    uint32_t code = 0;
    bool partial = false;
    switch (p[0]) {
    case 27: return vt_escape(vt, p, n);
    case '\r': vt_move(vt, vt->y, 0); return 1;
    case '\n': vt_line_feed(vt); return 1;
    case '\b': vt_move(vt, vt->y, vt->x - 1); return 1;
    case '\t': vt_move(vt, vt->y, (vt->x / 8 + 1) * 8); return 1;
    case '\a': vt->bells++; return 1;
    default: break;
    }
    if ((unsigned char)p[0] < 32 || p[0] == 127) {
        return 1;
    }
    size_t used = utf8_decode(p, n, &code, &partial);
    if (partial) {
        return 0;
    }
    vt_put(vt, code);
    return used > 0 ? used : 1;
}

static inline void vt_feed(Vt *vt, const char *bytes, size_t n)
{
    while (n > 0) {
        size_t room = sizeof vt->pending - vt->n;
        size_t take = n < room ? n : room;
        memcpy(vt->pending + vt->n, bytes, take);
        vt->n += take;
        bytes += take;
        n -= take;
        size_t at = 0;
        size_t used = 1;
        while (at < vt->n && used > 0) {
            used = vt_step(vt, vt->pending + at, vt->n - at);
            at += used;
        }
        if (at == 0 && vt->n == sizeof vt->pending) { /* a sequence longer than the buffer */
            vt->unknown++;
            at = vt->n;
        }
        memmove(vt->pending, vt->pending + at, vt->n - at);
        vt->n -= at;
    }
}

/* Row y as text into a buffer of at least 4 * VT_W + 1 bytes, blanks at its end cut. */
static inline void vt_row(const Vt *vt, int y, char *out)
{
    size_t n = 0;
    size_t end = 0;
    for (int x = 0; x < vt->w; x++) {
        if (vt->cells[y][x] != 0) {
            n += utf8_encode(vt->cells[y][x], out + n);
            end = vt->cells[y][x] != ' ' ? n : end;
        }
    }
    out[end] = '\0';
}

static inline bool vt_shows(const Vt *vt, const char *word)
{
    char row[4 * VT_W + 1];
    for (int y = 0; y < vt->h; y++) {
        vt_row(vt, y, row);
        if (strstr(row, word)) {
            return true;
        }
    }
    return false;
}

#endif
