#include "tui/theme.h"

#include "core/base/fs.h"

#include <ctype.h>
#include <math.h>
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
    int n = snprintf(out, size, "%s:%d: ", p->path, p->line);
    if (n < 0 || (size_t)n >= size) {
        return;
    }
    va_list args;
    va_start(args, format);
    (void)vsnprintf(out + n, size - (size_t)n, format, args);
    va_end(args);
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

void theme_parse(Theme *theme, Str text, const char *path, char base[64],
                 ThemeProblems *problems)
{
    Parser p = {.theme = theme, .problems = problems, .path = path, .base = base};
    Str line;
    if (base) {
        base[0] = '\0';
    }
    while (str_split(&text, '\n', &line)) {
        size_t equals = 0;
        p.line++;
        line = str_trim(strip_comment(line));
        if (line.n == 0) {
            continue;
        }
        if (line.p[0] == '[' && line.p[line.n - 1] == ']') {
            take_section(&p, str_slice(line, 1, line.n - 1));
            continue;
        }
        if (!str_find(line, STR("="), &equals)) {
            problem(&p, "expected '[section]' or 'name = value'");
            continue;
        }
        Str key = str_trim(str_slice(line, 0, equals));
        Str value = str_trim(str_slice(line, equals + 1, line.n));
        switch (p.section) {
        case SECTION_NONE: break;
        case SECTION_THEME: take_theme_key(&p, key, value); break;
        case SECTION_PALETTE: take_palette(&p, key, value); break;
        case SECTION_ROLES: take_role(&p, key, value); break;
        }
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
                problem(&p, "bases are nested deeper than %d", BASE_DEPTH_MAX);
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

/* ---- colours ------------------------------------------------------------------------------- */

static const unsigned char base16[16][3] = {
    {0, 0, 0},       {205, 0, 0},   {0, 205, 0},   {205, 205, 0},   {0, 0, 238},    {205, 0, 205},
    {0, 205, 205},   {229, 229, 229}, {127, 127, 127}, {255, 0, 0}, {0, 255, 0},    {255, 255, 0},
    {92, 92, 255},   {255, 0, 255}, {0, 255, 255}, {255, 255, 255}};

static void colour_rgb(int colour, int out[3])
{
    static const int steps[6] = {0, 95, 135, 175, 215, 255};
    if (colour & COLOUR_RGB) {
        out[0] = (colour >> 16) & 255;
        out[1] = (colour >> 8) & 255;
        out[2] = colour & 255;
    } else if (colour < 16) {
        for (int i = 0; i < 3; i++) {
            out[i] = base16[colour][i];
        }
    } else if (colour < 232) {
        out[0] = steps[(colour - 16) / 36];
        out[1] = steps[(colour - 16) / 6 % 6];
        out[2] = steps[(colour - 16) % 6];
    } else {
        out[0] = out[1] = out[2] = 8 + (colour - 232) * 10;
    }
}

static int reduce(int colour, int colours)
{
    if (colour == COLOUR_DEFAULT || (!(colour & COLOUR_RGB) && colour < colours)) {
        return colour;
    }
    int want[3];
    int best = COLOUR_DEFAULT;
    long best_distance = -1;
    colour_rgb(colour, want);
    for (int i = colours >= 256 ? 16 : 0; i < colours && i < 256; i++) {
        int have[3];
        colour_rgb(i, have);
        long distance = 0;
        for (int k = 0; k < 3; k++) {
            distance += (long)(want[k] - have[k]) * (want[k] - have[k]);
        }
        if (best_distance < 0 || distance < best_distance) {
            best_distance = distance;
            best = i;
        }
    }
    return best;
}

/* With direct colour a number is red, green, blue; the first eight stay the terminal's own. */
static int direct(int colour)
{
    int rgb[3];
    if (colour == COLOUR_DEFAULT || (!(colour & COLOUR_RGB) && colour < 8)) {
        return colour;
    }
    colour_rgb(colour, rgb);
    int value = rgb[0] << 16 | rgb[1] << 8 | rgb[2];
    return value > 0 && value < 8 ? 8 : value;
}

Style theme_style(const Theme *theme, Role role, int colours)
{
    int depth = colours >= 256 ? 0 : colours >= 16 ? 1 : 2;
    while (depth > 0 && !theme->set[depth][role]) {
        depth--;
    }
    Style style = theme->styles[depth][role];
    if (colours < 8) {
        style.fg = COLOUR_DEFAULT;
        style.bg = COLOUR_DEFAULT;
    } else {
        style.fg = colours > 256 ? direct(style.fg) : reduce(style.fg, colours);
        style.bg = colours > 256 ? direct(style.bg) : reduce(style.bg, colours);
    }
    return style;
}

static double luminance(const int rgb[3])
{
    static const double weight[3] = {0.2126, 0.7152, 0.0722};
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        double c = rgb[i] / 255.0;
        sum += weight[i] * (c <= 0.03928 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4));
    }
    return sum;
}

double theme_contrast(const Theme *theme, Role role)
{
    Style style = theme->styles[0][role];
    int paper[3] = {theme->light ? 255 : 0, theme->light ? 255 : 0, theme->light ? 255 : 0};
    int ink[3] = {255 - paper[0], 255 - paper[1], 255 - paper[2]};
    int fg[3] = {ink[0], ink[1], ink[2]};
    int bg[3] = {paper[0], paper[1], paper[2]};
    if (style.fg != COLOUR_DEFAULT) {
        colour_rgb(style.fg, fg);
    }
    if (style.bg != COLOUR_DEFAULT) {
        colour_rgb(style.bg, bg);
    }
    double a = luminance(fg);
    double b = luminance(bg);
    return a > b ? (a + 0.05) / (b + 0.05) : (b + 0.05) / (a + 0.05);
}

/* ---- the check ----------------------------------------------------------------------------- */

static void warning(ThemeProblems *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void warning(ThemeProblems *out, const char *format, ...)
{
    out->total++;
    if (out->count < THEME_PROBLEMS_MAX) {
        va_list args;
        va_start(args, format);
        (void)vsnprintf(out->lines[out->count++], sizeof out->lines[0], format, args);
        va_end(args);
    }
}

static double linear(double c)
{
    return c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
}

static double lab_curve(double t)
{
    return t > 216.0 / 24389 ? cbrt(t) : (24389.0 / 27 * t + 16) / 116;
}

/* What an eye of one kind sees of a colour, as CIE L*a*b* (D65). The matrices are those of
 * Machado, Oliveira and Fernandes (2009) at full severity, for linear sRGB. */
static void seen_lab(const int rgb[3], const double eye[3][3], double lab[3])
{
    static const double to_xyz[3][3] = {{0.4124564, 0.3575761, 0.1804375},
                                        {0.2126729, 0.7151522, 0.0721750},
                                        {0.0193339, 0.1191920, 0.9503041}};
    static const double white[3] = {0.95047, 1.0, 1.08883};
    double seen[3] = {0, 0, 0};
    double f[3];
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) {
            seen[i] += eye[i][k] * linear(rgb[k] / 255.0);
        }
        seen[i] = fmin(1, fmax(0, seen[i]));
    }
    for (int i = 0; i < 3; i++) {
        double sum = 0;
        for (int k = 0; k < 3; k++) {
            sum += to_xyz[i][k] * seen[k];
        }
        f[i] = lab_curve(sum / white[i]);
    }
    lab[0] = 116 * f[1] - 16;
    lab[1] = 500 * (f[0] - f[1]);
    lab[2] = 200 * (f[1] - f[2]);
}

static double seen_distance(const Theme *theme, Role a, Role b, const double eye[3][3])
{
    const Role roles[2] = {a, b};
    double lab[2][3];
    for (int i = 0; i < 2; i++) {
        const Style *style = &theme->styles[0][roles[i]];
        int rgb[3] = {theme->light ? 0 : 229, theme->light ? 0 : 229, theme->light ? 0 : 229};
        if (style->fg != COLOUR_DEFAULT) {
            colour_rgb(style->fg, rgb);
        }
        seen_lab(rgb, eye, lab[i]);
    }
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        sum += (lab[0][i] - lab[1][i]) * (lab[0][i] - lab[1][i]);
    }
    return sqrt(sum);
}

void theme_check(const Theme *theme, const char *path, ThemeProblems *warnings)
{
    enum { KINDS = 3, PAIRS = 3, APART = 12 };
    static const struct {
        const char *name;
        double eye[3][3];
    } kinds[KINDS] = {
        {"protan", {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216},
                    {-0.003882, -0.048116, 1.051998}}},
        {"deutan", {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413},
                    {-0.011820, 0.042940, 0.968881}}},
        {"tritan", {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602},
                    {0.004733, 0.691367, 0.303900}}},
    };
    static const Role pairs[PAIRS][2] = {
        {ROLE_OK, ROLE_WARN}, {ROLE_OK, ROLE_CRIT}, {ROLE_WARN, ROLE_CRIT}};
    for (int role = 0; role < ROLE_COUNT; role++) {
        double floor = role == ROLE_BORDER || role == ROLE_GONE ? 2.5 : 4.5;
        double contrast = theme_contrast(theme, (Role)role);
        if (contrast < floor) {
            warning(warnings, "%s: %s has a contrast of %.1f to 1 on a %s background; %.1f reads "
                    "well", path, theme_role_name((Role)role), contrast,
                    theme->light ? "light" : "dark", floor);
        }
    }
    for (int i = 0; i < KINDS * PAIRS; i++) {
        Role a = pairs[i % PAIRS][0];
        Role b = pairs[i % PAIRS][1];
        const Style *left = &theme->styles[0][a];
        const Style *right = &theme->styles[0][b];
        if (left->attrs == right->attrs && left->bg == right->bg &&
            seen_distance(theme, a, b, kinds[i / PAIRS].eye) < APART) {
            warning(warnings, "%s: %s and %s look alike to %s eyes; change a colour's lightness "
                    "or give one bold or reverse", path, theme_role_name(a), theme_role_name(b),
                    kinds[i / PAIRS].name);
        }
    }
}
