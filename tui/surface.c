#include "tui/surface.h"

#include "core/base/mem.h"
#include "core/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum { DRAW_TEXT_MAX = 1024, MARK_UTF8 = 0xfffd, MARK_ASCII = '?' };

struct Surface {
    int w, h, cursor_x, cursor_y;
    bool ascii;
    Cell *cells;
    struct {
        Rect r;
        Hit hit;
    } hits[SURFACE_HITS_MAX];
    int hit_count;
};

static const uint32_t glyph_utf8[GLYPH_COUNT] = {
#define GLYPH_UTF8(name, utf8, ascii) utf8,
    TUI_GLYPHS(GLYPH_UTF8)
};
static const char glyph_ascii[GLYPH_COUNT] = {
#define GLYPH_ASCII(name, utf8, ascii) ascii,
    TUI_GLYPHS(GLYPH_ASCII)
};
static const char role_letters[ROLE_COUNT + 1] = {
#define ROLE_LETTER(name, word, letter, c256, c8, mono) letter,
    TUI_ROLES(ROLE_LETTER)
};

static int clamp(int v, int low, int high)
{
    return v < low ? low : v > high ? high : v;
}

Surface *surface_new(int w, int h, bool ascii)
{
    Surface *surface = xcalloc(1, sizeof *surface);
    surface->ascii = ascii;
    surface_resize(surface, w, h);
    return surface;
}

void surface_free(Surface *surface)
{
    if (surface) {
        free(surface->cells);
        free(surface);
    }
}

void surface_resize(Surface *surface, int w, int h)
{
    surface->w = clamp(w, 1, SURFACE_W_MAX);
    surface->h = clamp(h, 1, SURFACE_H_MAX);
    size_t count = (size_t)surface->w * (size_t)surface->h;
    surface->cells = xrealloc(surface->cells, count, sizeof *surface->cells);
    surface_clear(surface);
}

void surface_clear(Surface *surface)
{
    const Cell blank = {.code = ' ', .role = ROLE_TEXT};
    int count = surface->w * surface->h;
    for (int i = 0; i < count; i++) {
        surface->cells[i] = blank;
    }
    surface->cursor_x = 0;
    surface->cursor_y = 0;
    surface->hit_count = 0;
}

void surface_copy(Surface *to, const Surface *from)
{
    if (to->w != from->w || to->h != from->h) {
        surface_resize(to, from->w, from->h);
    }
    size_t count = (size_t)from->w * (size_t)from->h;
    memcpy(to->cells, from->cells, count * sizeof *to->cells);
}

void surface_hit(Surface *surface, Rect r, Hit hit)
{
    if (surface->hit_count < SURFACE_HITS_MAX && r.w > 0 && r.h > 0) {
        surface->hits[surface->hit_count].r = r;
        surface->hits[surface->hit_count++].hit = hit;
    }
}

Hit surface_hit_at(const Surface *surface, int x, int y)
{
    for (int i = surface->hit_count - 1; i >= 0; i--) {
        Rect r = surface->hits[i].r;
        if (x >= r.x && x < r.x + r.w && y >= r.y && y < r.y + r.h) {
            return surface->hits[i].hit;
        }
    }
    return (Hit){HIT_NONE, 0, 0};
}

int surface_w(const Surface *surface)
{
    return surface->w;
}

int surface_h(const Surface *surface)
{
    return surface->h;
}

bool surface_ascii(const Surface *surface)
{
    return surface->ascii;
}

static Cell *cell_at(Surface *surface, int x, int y)
{
    if (x < 0 || y < 0 || x >= surface->w || y >= surface->h) {
        return NULL;
    }
    return &surface->cells[y * surface->w + x];
}

const Cell *surface_cell(const Surface *surface, int x, int y)
{
    if (x < 0 || y < 0 || x >= surface->w || y >= surface->h) {
        return NULL;
    }
    return &surface->cells[y * surface->w + x];
}

void surface_cursor(Surface *surface, int x, int y)
{
    surface->cursor_x = clamp(x, 0, surface->w - 1);
    surface->cursor_y = clamp(y, 0, surface->h - 1);
}

void surface_cursor_get(const Surface *surface, int *x, int *y)
{
    *x = surface->cursor_x;
    *y = surface->cursor_y;
}

void surface_flag(Surface *surface, int x, int y, int n, unsigned char flags)
{
    for (int i = x; i < x + n; i++) {
        Cell *cell = cell_at(surface, i, y);
        if (cell) {
            cell->flags = (unsigned char)(cell->flags | flags);
        }
    }
}

/* Writing over half of a wide character blanks the other half. */
static void set_cell(Surface *surface, int x, int y, Role role, uint32_t code)
{
    Cell *cell = cell_at(surface, x, y);
    if (!cell) {
        return;
    }
    if (cell->code == 0 && x > 0 && code != 0) {
        cell[-1].code = ' ';
    }
    if (x + 1 < surface->w && cell[1].code == 0 && cell->code != 0) {
        cell[1].code = ' ';
    }
    *cell = (Cell){.code = code, .role = (unsigned char)role, .flags = cell->flags};
}

bool surface_sanitise(uint32_t code, bool ascii, uint32_t *out, int *width)
{
    *width = 1;
    if (code >= 0x20 && code < 0x7f) {
        *out = code;
        return false;
    }
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)code);
    bool foreign = category == UTF8PROC_CATEGORY_CN || category == UTF8PROC_CATEGORY_CC ||
                   category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CS ||
                   category == UTF8PROC_CATEGORY_CO || category == UTF8PROC_CATEGORY_ZL ||
                   category == UTF8PROC_CATEGORY_ZP;
    if (foreign) {
        *out = ascii ? MARK_ASCII : MARK_UTF8;
        return false;
    }
    int cells = utf8proc_charwidth((utf8proc_int32_t)code);
    if (category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME) {
        *width = 0;
        *out = code;
        return true;
    }
    if (category == UTF8PROC_CATEGORY_ZS) {
        *out = ' ';
        *width = cells == 2 ? 2 : 1;
        return false;
    }
    if (cells < 1 || cells > 2) { /* hangul fillers and the like: no width of their own */
        *out = ascii ? MARK_ASCII : MARK_UTF8;
        return false;
    }
    *width = cells;
    *out = ascii ? MARK_ASCII : code;
    return false;
}

static void put_wide(Surface *surface, int x, int y, Role role, uint32_t code, int width)
{
    if (width == 2 && (surface->ascii || code == ' ')) {
        set_cell(surface, x, y, role, code);
        set_cell(surface, x + 1, y, role, code);
        return;
    }
    set_cell(surface, x, y, role, code);
    if (width == 2) {
        Cell *next = cell_at(surface, x + 1, y);
        if (next) {
            set_cell(surface, x + 1, y, role, ' ');
            next->code = 0;
        }
    }
}

static void join_base(Surface *surface, int x, int y, uint32_t code)
{
    Cell *cell = cell_at(surface, x, y);
    if (cell && cell->code == 0 && x > 0) {
        cell--;
    }
    if (!cell || cell->code == ' ' || surface->ascii) {
        return;
    }
    for (int i = 0; i < CELL_COMBINING; i++) {
        if (cell->combining[i] == 0) {
            cell->combining[i] = code;
            return;
        }
    }
}

int surface_put(Surface *surface, int x, int y, int max_w, Role role, Str text)
{
    int used = 0;
    int last_width = 0;
    if (max_w > surface->w - x) {
        max_w = surface->w - x;
    }
    for (size_t i = 0; i < text.n;) {
        uint32_t code = 0;
        uint32_t shown = 0;
        bool partial = false;
        int width = 0;
        i += utf8_decode(text.p + i, text.n - i, &code, &partial);
        if (surface_sanitise(code, surface->ascii, &shown, &width)) {
            if (used > 0) {
                join_base(surface, x + used - 1, y, shown);
            }
            continue;
        }
        if (used + width > max_w) {
            if (used > 0 || max_w > 0) {
                /* The cut sign takes the last cell; a wide character there gives way whole. */
                int at = used == max_w ? used - 1 : used;
                if (used == max_w && last_width == 2 && !surface->ascii) {
                    set_cell(surface, x + at - 1, y, role, ' ');
                }
                surface_glyph(surface, x + at, y, role, GLYPH_CUT);
                used = at + 1;
            }
            break;
        }
        put_wide(surface, x + used, y, role, shown, width);
        used += width;
        last_width = width;
    }
    return used;
}

void surface_glyph(Surface *surface, int x, int y, Role role, Glyph glyph)
{
    uint32_t code = surface->ascii ? (uint32_t)glyph_ascii[glyph] : glyph_utf8[glyph];
    set_cell(surface, x, y, role, code);
}

char surface_glyph_ascii(Glyph glyph)
{
    return glyph_ascii[glyph];
}

int surface_text_width(const Surface *surface, Str text)
{
    int used = 0;
    for (size_t i = 0; i < text.n;) {
        uint32_t code = 0;
        uint32_t shown = 0;
        bool partial = false;
        int width = 0;
        i += utf8_decode(text.p + i, text.n - i, &code, &partial);
        if (!surface_sanitise(code, surface->ascii, &shown, &width)) {
            used += width;
        }
    }
    return used;
}

static void add_code(Text *out, uint32_t code)
{
    char bytes[4];
    size_t n = utf8_encode(code, bytes);
    (void)text_add(out, bytes, n);
}

void surface_dump_row(const Surface *surface, int y, Text *out)
{
    if (y < 0 || y >= surface->h) {
        return;
    }
    const Cell *row = &surface->cells[y * surface->w];
    int end = surface->w;
    while (end > 0 && row[end - 1].code == ' ') {
        end--;
    }
    for (int x = 0; x < end; x++) {
        if (row[x].code == 0) {
            continue;
        }
        add_code(out, row[x].code);
        for (int k = 0; k < CELL_COMBINING && row[x].combining[k]; k++) {
            add_code(out, row[x].combining[k]);
        }
    }
    (void)text_add_char(out, '\n');
}

void surface_dump_text(const Surface *surface, Text *out)
{
    for (int y = 0; y < surface->h; y++) {
        surface_dump_row(surface, y, out);
    }
}

void surface_dump_roles(const Surface *surface, Text *out)
{
    for (int y = 0; y < surface->h; y++) {
        const Cell *row = &surface->cells[y * surface->w];
        int end = surface->w;
        while (end > 0 && row[end - 1].role == ROLE_TEXT && row[end - 1].flags == 0) {
            end--;
        }
        for (int x = 0; x < end; x++) {
            bool selected = (row[x].flags & CELL_SELECTED) != 0 && row[x].code == ' ';
            (void)text_add_char(out, selected ? '#' : role_letters[row[x].role]);
        }
        (void)text_add_char(out, '\n');
    }
}

/* ---- Draw ---------------------------------------------------------------------------------- */

int draw_str(const Draw *d, int x, int y, Role role, Str text)
{
    if (y < 0 || y >= d->r.h || x < 0 || x >= d->r.w) {
        return 0;
    }
    return surface_put(d->surface, d->r.x + x, d->r.y + y, d->r.w - x, role, text);
}

int draw_text(const Draw *d, int x, int y, Role role, const char *text)
{
    return draw_str(d, x, y, role, str_from(text));
}

int draw_f(const Draw *d, int x, int y, Role role, const char *format, ...)
{
    char buffer[DRAW_TEXT_MAX];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(buffer, sizeof buffer, format, args);
    va_end(args);
    if (n < 0) {
        return 0;
    }
    size_t length = (size_t)n < sizeof buffer ? (size_t)n : sizeof buffer - 1;
    return draw_str(d, x, y, role, (Str){buffer, length});
}

void draw_field(const Draw *d, int x, int y, int w, bool right, Role role, const char *text)
{
    Str s = str_from(text);
    Draw field = draw_sub(d, x, y, w, 1);
    int width = right ? surface_text_width(d->surface, s) : 0;
    draw_str(&field, right && width < w ? w - width : 0, 0, role, s);
}

void draw_glyph(const Draw *d, int x, int y, Role role, Glyph glyph)
{
    if (x >= 0 && y >= 0 && x < d->r.w && y < d->r.h) {
        surface_glyph(d->surface, d->r.x + x, d->r.y + y, role, glyph);
    }
}

void draw_braille(const Draw *d, int x, int y, Role role, unsigned bits)
{
    if (x >= 0 && y >= 0 && x < d->r.w && y < d->r.h && !d->surface->ascii) {
        set_cell(d->surface, d->r.x + x, d->r.y + y, role, 0x2800 + (bits & 0xff));
    }
}

void draw_hit(const Draw *d, int x, int y, int w, HitKind kind, int pane, int value)
{
    int room = d->r.w - x;
    if (x >= 0 && y >= -1 && y < d->r.h && room > 0) {
        surface_hit(d->surface, (Rect){d->r.x + x, d->r.y + y, w < room ? w : room, 1},
                    (Hit){kind, pane, value});
    }
}

void draw_flag_row(const Draw *d, int y, unsigned char flags)
{
    if (y >= 0 && y < d->r.h) {
        surface_flag(d->surface, d->r.x, d->r.y + y, d->r.w, flags);
    }
}

Draw draw_sub(const Draw *d, int x, int y, int w, int h)
{
    int left = clamp(x, 0, d->r.w);
    int top = clamp(y, 0, d->r.h);
    Draw sub = {d->surface, {d->r.x + left, d->r.y + top, 0, 0}};
    sub.r.w = clamp(w - (left - x), 0, d->r.w - left);
    sub.r.h = clamp(h - (top - y), 0, d->r.h - top);
    return sub;
}

void draw_clear(const Draw *d)
{
    for (int y = 0; y < d->r.h; y++) {
        for (int x = 0; x < d->r.w; x++) {
            set_cell(d->surface, d->r.x + x, d->r.y + y, ROLE_TEXT, ' ');
            Cell *cell = cell_at(d->surface, d->r.x + x, d->r.y + y);
            if (cell) {
                cell->flags = 0;
            }
        }
    }
}

/* The longest prefix of `text` that fits `w` cells, whole characters, or up to a line feed. */
static size_t wrap_take(const Surface *surface, Str text, int w)
{
    size_t i = 0;
    int used = 0;
    while (i < text.n && text.p[i] != '\n') {
        uint32_t code = 0;
        uint32_t shown = 0;
        bool partial = false;
        int width = 0;
        size_t n = utf8_decode(text.p + i, text.n - i, &code, &partial);
        bool joins = surface_sanitise(code, surface->ascii, &shown, &width);
        if (!joins && used + width > w) {
            break;
        }
        used += joins ? 0 : width;
        i += n;
    }
    return i;
}

/* A line ends behind a blank in its second half where there is one: words stay whole, and one
 * that is longer than half a line is not worth the room. */
static size_t wrap_words(Str text, size_t n)
{
    if (n == text.n || text.p[n] == '\n') {
        return n;
    }
    if (text.p[n] == ' ') {
        return n + 1;
    }
    for (size_t i = n; i > n / 2; i--) {
        if (text.p[i - 1] == ' ') {
            return i;
        }
    }
    return n;
}

int draw_wrap(const Draw *d, int y, int rows, int skip, Role role, Str text)
{
    int needed = 0;
    if (d->r.w < 2) {
        return 0;
    }
    while (text.n > 0) {
        size_t n = wrap_words(text, wrap_take(d->surface, text, d->r.w));
        size_t shown = n;
        while (shown > 0 && text.p[shown - 1] == ' ') {
            shown--;
        }
        if (needed >= skip && needed < skip + rows) {
            draw_str(d, 0, y + needed - skip, role, str_slice(text, 0, shown));
        }
        needed++;
        bool broke = n < text.n && text.p[n] == '\n';
        text = str_slice(text, n + (broke ? 1 : 0), text.n);
        if (n == 0 && !broke) {
            break;
        }
    }
    return needed;
}
