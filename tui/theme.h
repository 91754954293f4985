/* Themes: NAME.theme, a small ini (sections theme, palette, roles, roles.16, roles.8). A theme
 * never stops the program: each mistake is one line with file and line number, and what it
 * misses comes from `base`, then from the built-in looks. Pure but for theme_load. */
#ifndef ROLLTOP_TUI_THEME_H
#define ROLLTOP_TUI_THEME_H

#include "core/base/str.h"
#include "tui/role.h"

enum {
    STYLE_BOLD = 1,
    STYLE_DIM = 2,
    STYLE_ITALIC = 4,
    STYLE_UNDERLINE = 8,
    STYLE_REVERSE = 16,
    COLOUR_DEFAULT = -1,
    COLOUR_RGB = 1 << 24, /* flag: the low 24 bits are red, green, blue */
    THEME_PROBLEMS_MAX = 16
};

typedef struct Style {
    int fg, bg;     /* COLOUR_DEFAULT, 0 to 255, or COLOUR_RGB | rrggbb */
    unsigned attrs; /* STYLE_ bits */
} Style;

typedef struct Theme {
    char name[64];
    Style styles[3][ROLE_COUNT]; /* for 256 and up, for 16, for 8 colours */
    bool set[3][ROLE_COUNT];
    bool light; /* meant for light backgrounds */
} Theme;

typedef struct ThemeProblems {
    char lines[THEME_PROBLEMS_MAX][256]; /* "PATH:LINE: what, and the fix"; without one: the file */
    size_t count, total;
} ThemeProblems;

void theme_builtin(Theme *theme, bool mono);
/* Applies one file's text on top of *theme. `base` gets the file's base name, "" without one
 * (may be NULL). Problems are appended. */
void theme_parse(Theme *theme, Str text, const char *path, char base[64],
                 ThemeProblems *problems);
/* DIR/NAME.theme with its bases (at most 4 deep) over the built-in look. A file that is missing
 * is a problem too; the theme is usable whatever happens. `dir` may be NULL. */
void theme_load(Theme *theme, const char *dir, const char *name, ThemeProblems *problems);
/* The look of a role at a colour count (0 or 1: no colour), colours reduced to what there is. */
Style theme_style(const Theme *theme, Role role, int colours);
const char *theme_role_name(Role role);
/* WCAG contrast of a role's look on the theme's background, 1 to 21. */
double theme_contrast(const Theme *theme, Role role);
/* What a reader of the theme may stumble over, one line each: contrast under 4.5 (2.5 for border
 * and gone, which carry no meaning), and ok, warn, crit that look alike to somebody with one of
 * the three common kinds of colour blindness and have the same attributes. */
void theme_check(const Theme *theme, const char *path, ThemeProblems *warnings);

#endif
