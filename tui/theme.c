#include "tui/theme.h"

#include "core/base/fs.h"
#include "core/base/ini.h"
#include "core/base/utf8.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PALETTE_MAX = 32, THEME_FILE_MAX = 64 * 1024, BASE_DEPTH_MAX = 4, DEPTH_COUNT = 3 };

typedef struct PaletteEntry {
    char name[32];
    int colour;
} PaletteEntry;

typedef enum Section { SECTION_NONE, SECTION_THEME, SECTION_PALETTE, SECTION_ROLES } Section;

typedef struct Parser {
    Theme *theme;
    ThemeProblems *problems;
    const char *path;
    int line;
    Section section;
    bool lost; /* in a section that has its problem already: its lines are not judged */
    int depth; /* which of the three tables */
    char *base;
    PaletteEntry palette[PALETTE_MAX];
    size_t palette_count;
} Parser;

typedef struct RoleEntry {
    const char *name;
    const char *looks[DEPTH_COUNT]; /* 256, 8, mono */
} RoleEntry;

static const RoleEntry role_table[ROLE_COUNT] = {
#define ROLE_ROW(name, word, letter, c256, c8, mono) {word, {c256, c8, mono}},
    TUI_ROLES(ROLE_ROW)
};
static const char *const colour_names[8] = {"black", "red",     "green", "yellow",
                                            "blue",  "magenta", "cyan",  "white"};
static const char *const attr_names[5] = {"bold", "dim", "italic", "underline", "reverse"};

static void problem(Parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void problem(Parser *p, const char *format, ...)
{
    ThemeProblems *problems = p->problems;
    if (!problems) {
        return;
    }
    problems->total++;
    if (problems->count >= THEME_PROBLEMS_MAX) {
        return;
    }
    char *out = problems->lines[problems->count++];
    size_t size = sizeof problems->lines[0];
    /* Line 0: about the file itself, which the sentence names. */
    int n = p->line == 0 ? 0 : snprintf(out, size, "%s:%d: ", p->path, p->line);
    if (n < 0 || (size_t)n >= size) {
        return;
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(out + n, size - (size_t)n, format, args);
    va_end(args);
    utf8_defuse(out);
}

const char *theme_role_name(Role role)
{
    return role_table[role].name;
}

static int role_find(Str name)
{
    for (int i = 0; i < ROLE_COUNT; i++) {
        if (str_equal(name, str_from(role_table[i].name))) {
            return i;
        }
    }
    return -1;
}

static bool parse_hex(Str word, int *out)
{
    if (word.n != 7 || word.p[0] != '#') {
        return false;
    }
    int value = 0;
    for (size_t i = 1; i < 7; i++) {
        if (!isxdigit((unsigned char)word.p[i])) {
            return false;
        }
        int c = tolower((unsigned char)word.p[i]);
        value = value * 16 + (isdigit(c) ? c - '0' : c - 'a' + 10);
    }
    *out = COLOUR_RGB | value;
    return true;
}

static bool parse_colour(const Parser *p, Str word, int *out)
{
    int64_t number = 0;
    Str rest = word;
    int bright = 0;
    if (str_equal(word, STR("default"))) {
        *out = COLOUR_DEFAULT;
        return true;
    }
    if (parse_hex(word, out)) {
        return true;
    }
    if (str_to_i64(word, &number)) {
        *out = (int)number;
        return number >= 0 && number <= 255;
    }
    if (str_starts(word, STR("bright-"))) {
        rest = str_slice(word, 7, word.n);
        bright = 8;
    }
    for (int i = 0; i < 8; i++) {
        if (str_equal(rest, str_from(colour_names[i]))) {
            *out = i + bright;
            return true;
        }
    }
    for (size_t i = 0; i < p->palette_count; i++) {
        if (str_equal(word, str_from(p->palette[i].name))) {
            *out = p->palette[i].colour;
            return true;
        }
    }
    return false;
}

static bool next_word(Str *rest, Str *word)
{
    *rest = str_trim(*rest);
    size_t n = 0;
    while (n < rest->n && rest->p[n] != ' ' && rest->p[n] != '\t') {
        n++;
    }
    *word = str_slice(*rest, 0, n);
    *rest = str_slice(*rest, n, rest->n);
    return n > 0;
}

static unsigned parse_attr(Str word)
{
    for (unsigned i = 0; i < 5; i++) {
        if (str_equal(word, str_from(attr_names[i]))) {
            return 1u << i;
        }
    }
    return 0;
}

/* COLOUR [on COLOUR] [ATTR ...] */
static bool parse_style(Parser *p, Str text, Style *out)
{
    Style style = {COLOUR_DEFAULT, COLOUR_DEFAULT, 0};
    Str word;
    if (!next_word(&text, &word)) {
        problem(p, "no colour given; write 'default', a name, 0 to 255 or #rrggbb");
        return false;
    }
    unsigned first_attr = parse_attr(word);
    style.attrs |= first_attr;
    if (!first_attr && !parse_colour(p, word, &style.fg)) {
        problem(p, "'%.*s' is no colour; use 'default', a name, 0 to 255, #rrggbb or a [palette] "
                "word", (int)word.n, word.p);
        return false;
    }
    while (next_word(&text, &word)) {
        unsigned attr = parse_attr(word);
        if (attr) {
            style.attrs |= attr;
        } else if (str_equal(word, STR("on"))) {
            if (!next_word(&text, &word) || !parse_colour(p, word, &style.bg)) {
                problem(p, "'on' wants a colour behind it, such as 'black on yellow'");
                return false;
            }
        } else {
            problem(p, "'%.*s' is no attribute; use bold, dim, italic, underline or reverse",
                    (int)word.n, word.p);
            return false;
        }
    }
    *out = style;
    return true;
}

static void take_section(Parser *p, Str name)
{
    p->depth = 0;
    p->section = SECTION_ROLES;
    if (str_equal(name, STR("theme"))) {
        p->section = SECTION_THEME;
    } else if (str_equal(name, STR("palette"))) {
        p->section = SECTION_PALETTE;
    } else if (str_equal(name, STR("roles.16"))) {
        p->depth = 1;
    } else if (str_equal(name, STR("roles.8"))) {
        p->depth = 2;
    } else if (!str_equal(name, STR("roles"))) {
        p->section = SECTION_NONE;
        p->lost = true;
        problem(p, "section [%.*s] is unknown; there are theme, palette, roles, roles.16, roles.8",
                (int)name.n, name.p);
    }
}

static void take_palette(Parser *p, Str key, Str value)
{
    PaletteEntry *entry = &p->palette[p->palette_count];
    int colour = 0;
    if (p->palette_count == PALETTE_MAX || key.n >= sizeof entry->name) {
        problem(p, "the palette holds %d names of up to 31 letters", PALETTE_MAX);
    } else if (!parse_colour(p, value, &colour)) {
        problem(p, "'%.*s' is no colour; use a name, 0 to 255 or #rrggbb", (int)value.n, value.p);
    } else {
        (void)str_format(entry->name, sizeof entry->name, "%.*s", (int)key.n, key.p);
        entry->colour = colour;
        p->palette_count++;
    }
}

static void take_theme_key(Parser *p, Str key, Str value)
{
    if (str_equal(key, STR("base"))) {
        if (p->base && !str_equal(value, STR("none"))) {
            (void)str_format(p->base, 64, "%.*s", (int)value.n, value.p);
        }
    } else if (str_equal(key, STR("background"))) {
        p->theme->light = str_equal(value, STR("light"));
        if (!p->theme->light && !str_equal(value, STR("dark")) && !str_equal(value, STR("any"))) {
            problem(p, "background is dark, light or any, not '%.*s'", (int)value.n, value.p);
        }
    } else if (!str_equal(key, STR("needs"))) {
        problem(p, "'%.*s' is no key of [theme]; there are base, needs and background",
                (int)key.n, key.p);
    }
}

static void take_role(Parser *p, Str key, Str value)
{
    int role = role_find(key);
    Style style;
    if (role < 0) {
        problem(p, "role '%.*s' is unknown; docs/console.md lists the %d roles", (int)key.n, key.p,
                ROLE_COUNT);
    } else if (parse_style(p, value, &style)) {
        p->theme->styles[p->depth][role] = style;
        p->theme->set[p->depth][role] = true;
    }
}

/* A comment starts at ';', or at '#' where no colour can stand: at the start of the line or
 * after a blank when six hex digits do not follow. */
static Str strip_comment(Str line)
{
    for (size_t i = 0; i < line.n; i++) {
        int ignored = 0;
        bool blank_before = i == 0 || line.p[i - 1] == ' ' || line.p[i - 1] == '\t';
        bool colour = i > 0 && parse_hex(str_slice(line, i, i + 7), &ignored);
        if (line.p[i] == ';' || (line.p[i] == '#' && blank_before && !colour)) {
            return str_slice(line, 0, i);
        }
    }
    return line;
}

static void take_pair(Parser *p, Str key, Str value)
{
    switch (p->section) {
    case SECTION_NONE:
        if (!p->lost) {
            problem(p, "'%.*s' stands in no section; write [theme] above it", (int)key.n, key.p);
        }
        break;
    case SECTION_THEME: take_theme_key(p, key, value); break;
    case SECTION_PALETTE: take_palette(p, key, value); break;
    case SECTION_ROLES: take_role(p, key, value); break;
    }
}

static void take_line(Parser *p, Str text)
{
    IniLine line;
    switch (ini_read(text, &line)) {
    case INI_NOTHING: break;
    case INI_SECTION: take_section(p, line.key); break;
    case INI_PAIR: take_pair(p, line.key, line.value); break;
    case INI_ZERO: problem(p, "a byte 0 stands in this line; write it anew"); break;
    case INI_OTHER: problem(p, "expected '[section]' or 'name = value'"); break;
    }
}

void theme_parse(Theme *theme, Str text, const char *path, char base[64],
                 ThemeProblems *problems)
{
    Parser p = {.theme = theme, .problems = problems, .path = path, .base = base};
    Str line;
    if (base) {
        base[0] = '\0';
    }
    while (str_split(&text, '\n', &line)) {
        p.line++;
        take_line(&p, strip_comment(line));
    }
}

void theme_builtin(Theme *theme, bool mono)
{
    Parser p = {.theme = theme, .path = "built-in"};
    memset(theme, 0, sizeof *theme);
    (void)str_format(theme->name, sizeof theme->name, "%s", mono ? "mono" : "dusk");
    for (int role = 0; role < ROLE_COUNT; role++) {
        for (int depth = 0; depth < DEPTH_COUNT; depth++) {
            const char *look = role_table[role].looks[mono ? 2 : depth == 0 ? 0 : 1];
            theme->set[depth][role] =
                parse_style(&p, str_from(look), &theme->styles[depth][role]);
        }
    }
}

/* The own file's words win over its base's, so bases are applied first, deepest first. A file
 * that sets only [roles] hides the built-in 16- and 8-colour looks of those roles as well. */
static void apply_file(Theme *theme, const Theme *own)
{
    for (int role = 0; role < ROLE_COUNT; role++) {
        for (int depth = 0; depth < DEPTH_COUNT; depth++) {
            if (own->set[depth][role]) {
                theme->styles[depth][role] = own->styles[depth][role];
                theme->set[depth][role] = true;
            } else if (depth > 0 && own->set[0][role]) {
                theme->set[depth][role] = false;
            }
        }
    }
    theme->light = own->light;
}

static void load_chain(Theme *theme, const char *dir, const char *name, int depth,
                       ThemeProblems *problems)
{
    Parser p = {.problems = problems, .path = dir ? dir : "themes"};
    if (strcmp(name, "mono") == 0 || strchr(name, '/') || name[0] == '.' || !dir) {
        bool builtin = strcmp(name, "mono") == 0 || strcmp(name, "dusk") == 0;
        theme_builtin(theme, strcmp(name, "mono") == 0);
        if (!builtin) {
            problem(&p, "theme '%s' cannot be looked up; name a file NAME.theme in the theme "
                    "directory", name);
        }
        return;
    }
    char file[128];
    (void)str_format(file, sizeof file, "%s.theme", name);
    char *path = fs_join(dir, file);
    Text text;
    text_init(&text, THEME_FILE_MAX);
    Fault fault = {0};
    p.path = path;
    if (fs_read(path, &text, &fault) != ERR_OK) {
        if (strcmp(name, "dusk") != 0) { /* dusk is built in as well */
            problem(&p, "%s", fault.sentence);
        }
        theme_builtin(theme, false);
    } else {
        Theme own;
        char base[64];
        memset(&own, 0, sizeof own);
        theme_parse(&own, text_str(&text), path, base, problems);
        if (base[0] && depth < BASE_DEPTH_MAX) {
            load_chain(theme, dir, base, depth + 1, problems);
        } else {
            if (base[0]) {
                problem(&p, "%s: bases are nested deeper than %d", path, BASE_DEPTH_MAX);
            }
            theme_builtin(theme, false);
        }
        apply_file(theme, &own);
    }
    text_free(&text);
    free(path);
}

void theme_load(Theme *theme, const char *dir, const char *name, ThemeProblems *problems)
{
    load_chain(theme, dir, name, 0, problems);
    (void)str_format(theme->name, sizeof theme->name, "%s", name);
}
