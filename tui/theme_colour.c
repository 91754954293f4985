/* What a theme's colours become on a terminal, and how well they are told apart. */
#include "tui/theme.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

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
