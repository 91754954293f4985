/* LaTeX to text, the part of pylatexenc 2.10 that answers use. What it does not know vanishes and
 * its arguments stay, as there. */
#include "core/rollout/reward_math.h"

#include "core/base/utf8.h"
#include "core/model/unicode.h"
#include "core/rollout/reward_latex_names.h"
#include "core/rollout/reward_text.h"

#include <string.h>

enum { DEPTH_MAX = 64 };

typedef struct Latex {
    Str s;
    size_t at;
    int depth;
    bool good;
} Latex;

static void convert(Latex *l, Text *out, Str stop);

static Str left(const Latex *l)
{
    return str_slice(l->s, l->at, l->s.n);
}

static void skip_blanks(Latex *l)
{
    while (l->at < l->s.n && (l->s.p[l->at] == ' ' || l->s.p[l->at] == '\n' ||
                              l->s.p[l->at] == '\t')) {
        l->at++;
    }
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The name behind a backslash: letters, or one character. */
static Str macro_name(Latex *l)
{
    size_t from = l->at;
    while (l->at < l->s.n && is_letter(l->s.p[l->at])) {
        l->at++;
    }
    if (l->at == from && l->at < l->s.n) {
        l->at++;
        while (l->at < l->s.n && ((unsigned char)l->s.p[l->at] & 0xC0) == 0x80) {
            l->at++;
        }
    }
    return str_slice(l->s, from, l->at);
}

/* A group's content through its closing brace. */
static void group(Latex *l, Text *out)
{
    l->at++;
    convert(l, out, STR("}")); /* a group may end with the text, without its brace */
    l->at += l->at < l->s.n ? 1 : 0;
}

static void macro(Latex *l, Text *out);

/* One argument: a group, a macro or one character. */
static void argument(Latex *l, Text *out)
{
    skip_blanks(l);
    if (l->at >= l->s.n || l->s.p[l->at] == '}') {
        l->good = false;
    } else if (l->s.p[l->at] == '{') {
        group(l, out);
    } else if (l->s.p[l->at] == '\\') {
        l->at++;
        macro(l, out);
    } else {
        do {
            (void)text_add_char(out, l->s.p[l->at++]);
        } while (l->at < l->s.n && ((unsigned char)l->s.p[l->at] & 0xC0) == 0x80);
    }
}

static void root(Latex *l, Text *out)
{
    skip_blanks(l);
    if (str_starts(left(l), STR("["))) { /* the index of the root is lost */
        Text index;
        text_init(&index, out->max);
        l->at++;
        convert(l, &index, STR("]"));
        l->at += l->at < l->s.n ? 1 : 0;
        text_free(&index);
    }
    (void)text_add_c(out, "√(");
    argument(l, out);
    (void)text_add_char(out, ')');
}

static bool is_matrix(Str name)
{
    static const char *const names[] = {"matrix",  "pmatrix", "bmatrix", "vmatrix",
                                        "Vmatrix", "Bmatrix", "smallmatrix", "array"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (str_equal(name, str_from(names[i]))) {
            return true;
        }
    }
    return false;
}

static Str environment_name(Latex *l)
{
    size_t end;
    if (!str_starts(left(l), STR("{")) || !str_find(left(l), STR("}"), &end)) {
        l->good = false;
        return (Str){0};
    }
    Str name = str_slice(left(l), 1, end);
    l->at += end + 1;
    return name;
}

/* \begin{X} … \end{X}: a matrix becomes [a b; c d], any other environment its content. */
static void environment(Latex *l, Text *out)
{
    Str name = environment_name(l);
    Text content;
    text_init(&content, out->max);
    convert(l, &content, STR("\\end"));
    if (!str_starts(left(l), STR("\\end"))) {
        l->good = false;
    } else {
        l->at += 4;
        l->good = str_equal(environment_name(l), name) && l->good;
    }
    if (!is_matrix(name)) {
        (void)text_add_str(out, text_str(&content));
    } else {
        (void)text_add_char(out, '[');
        for (size_t i = 0; i < content.n; i++) {
            char c = content.p[i];
            (void)text_add_c(out, c == '\n' ? "; " : c == '&' ? " " : "");
            if (c != '\n' && c != '&') {
                (void)text_add_char(out, c);
            }
        }
        (void)text_add_char(out, ']');
    }
    text_free(&content);
}

/* Both arguments or neither: the reference leaves its own template where one is missing. */
static void fraction(Latex *l, Text *out)
{
    Latex ahead = *l;
    Text parts;
    text_init(&parts, out->max);
    argument(&ahead, &parts);
    (void)text_add_char(&parts, '/');
    argument(&ahead, &parts);
    if (ahead.good) {
        *l = ahead;
        (void)text_add_str(out, text_str(&parts));
    } else {
        (void)text_add_c(out, "%s/%s");
    }
    text_free(&parts);
}

typedef struct Style {
    const char *name;
    uint32_t upper, lower; /* where A and a go */
} Style;

/* Letters that Unicode had before the mathematical alphabets: their places there are empty. */
static uint32_t style_code(const Style *style, uint32_t c)
{
    static const uint32_t moved[][2] = {
        {0x1D455, 0x210E}, {0x1D49D, 0x212C}, {0x1D4A0, 0x2130}, {0x1D4A1, 0x2131},
        {0x1D4A3, 0x210B}, {0x1D4A4, 0x2110}, {0x1D4A7, 0x2112}, {0x1D4A8, 0x2133},
        {0x1D4AD, 0x211B}, {0x1D4BA, 0x212F}, {0x1D4BC, 0x210A}, {0x1D4C4, 0x2134},
        {0x1D506, 0x212D}, {0x1D50B, 0x210C}, {0x1D50C, 0x2111}, {0x1D515, 0x211C},
        {0x1D51D, 0x2128}, {0x1D53A, 0x2102}, {0x1D53F, 0x210D}, {0x1D545, 0x2115},
        {0x1D547, 0x2119}, {0x1D548, 0x211A}, {0x1D549, 0x211D}, {0x1D551, 0x2124}};
    if (c >= 'A' && c <= 'Z') {
        c = style->upper + (c - 'A');
    } else if (c >= 'a' && c <= 'z') {
        c = style->lower + (c - 'a');
    }
    for (size_t i = 0; i < sizeof moved / sizeof moved[0]; i++) {
        c = c == moved[i][0] ? moved[i][1] : c;
    }
    return c;
}

static bool styled(Latex *l, Str name, Text *out)
{
    static const Style styles[] = {
        {"mathbf", 0x1D400, 0x1D41A}, {"mathit", 0x1D434, 0x1D44E}, {"mathbb", 0x1D538, 0x1D552},
        {"mathcal", 0x1D49C, 0x1D4B6}, {"mathscr", 0x1D49C, 0x1D4B6},
        {"mathfrak", 0x1D504, 0x1D51E}, {"mathsf", 0x1D5A0, 0x1D5BA},
        {"mathtt", 0x1D670, 0x1D68A}};
    for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++) {
        if (!str_equal(name, str_from(styles[i].name))) {
            continue;
        }
        Text plain;
        size_t n;
        text_init(&plain, out->max);
        argument(l, &plain);
        for (size_t k = 0; k < plain.n; k += n) {
            char bytes[4];
            uint32_t code = style_code(&styles[i], reward_code(text_str(&plain), k, &n));
            (void)text_add(out, bytes, utf8_encode(code, bytes));
        }
        text_free(&plain);
        return true;
    }
    return false;
}

/* Accents put their mark behind every character of the argument, then compose. */
static bool accented(Latex *l, Str name, Text *out)
{
    static const char *const accents[][2] = {
        {"hat", "\xCC\x82"}, {"bar", "\xCC\x85"}, {"tilde", "\xCC\x83"}, {"vec", "\xE2\x83\x97"},
        {"dot", "\xCC\x87"}, {"ddot", "\xCC\x88"}, {"check", "\xCC\x8C"}, {"breve", "\xCC\x86"},
        {"acute", "\xCC\x81"}, {"grave", "\xCC\x80"}};
    for (size_t i = 0; i < sizeof accents / sizeof accents[0]; i++) {
        if (!str_equal(name, str_from(accents[i][0]))) {
            continue;
        }
        Text plain;
        Text marked;
        size_t n;
        text_init(&plain, out->max);
        text_init(&marked, out->max);
        argument(l, &plain);
        for (size_t k = 0; k < plain.n; k += n) {
            (void)reward_code(text_str(&plain), k, &n);
            (void)text_add(&marked, plain.p + k, n);
            (void)text_add_c(&marked, accents[i][1]);
        }
        (void)unicode_nfc(text_str(&marked), out);
        text_free(&plain);
        text_free(&marked);
        return true;
    }
    return false;
}

/* Macros that the reference drops together with their argument. */
static bool swallowed(Latex *l, Str name)
{
    static const char *const names[] = {"texttt", "textsf",    "textup", "mbox",     "ensuremath",
                                        "hspace", "textcolor", "label",  "color"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (str_equal(name, str_from(names[i]))) {
            Text dropped;
            text_init(&dropped, 1 << 20);
            argument(l, &dropped);
            text_free(&dropped);
            return true;
        }
    }
    return false;
}

static void macro(Latex *l, Text *out)
{
    Str name = macro_name(l);
    if (str_equal(name, STR("frac")) || str_equal(name, STR("nicefrac"))) {
        fraction(l, out);
        return;
    }
    if (styled(l, name, out) || accented(l, name, out) || swallowed(l, name)) {
        return;
    }
    if (str_equal(name, STR("sqrt"))) {
        root(l, out);
        return;
    }
    if (str_equal(name, STR("begin"))) {
        environment(l, out);
        return;
    }
    for (size_t i = 0; i < latex_names_count; i++) {
        if (str_equal(name, str_from(latex_names[i].macro))) {
            (void)text_add_c(out, latex_names[i].text);
            return;
        }
    }
    /* text fonts keep their argument, which follows; what is unknown vanishes */
}

/* Text specials of two and more characters; the length used, 0 when none stands here. */
static size_t special(Str s, Text *out)
{
    static const char *const table[][2] = {
        {"---", "—"}, {"--", "–"}, {"``", "“"}, {"''", "”"}, {"<<", "«"}, {">>", "»"},
        {"!`", "¡"}, {"?`", "¿"}, {"~", "\xC2\xA0"}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (str_starts(s, str_from(table[i][0]))) {
            (void)text_add_c(out, table[i][1]);
            return strlen(table[i][0]);
        }
    }
    return 0;
}

/* Until `stop` stands at the place (not consumed) or the end. */
static void convert(Latex *l, Text *out, Str stop)
{
    if (++l->depth > DEPTH_MAX) {
        l->good = false;
    }
    while (l->good && l->at < l->s.n) {
        Str rest = left(l);
        if (stop.n > 0 && str_starts(rest, stop) &&
            !(stop.n > 1 && rest.n > stop.n && is_letter(rest.p[stop.n]))) {
            break;
        }
        if (rest.p[0] == '\\') {
            l->at++;
            macro(l, out);
        } else if (rest.p[0] == '{') {
            group(l, out);
        } else if (rest.p[0] == '}') {
            l->at++; /* a brace too many is dropped */
        } else {
            size_t used = special(rest, out);
            l->at += used;
            if (used == 0) {
                (void)text_add_char(out, l->s.p[l->at++]);
            }
        }
    }
    l->depth--;
}

bool math_latex_to_text(Str latex, Text *out)
{
    Latex l = {.s = latex, .good = true};
    convert(&l, out, (Str){0});
    return l.good && !out->cut;
}
