/* LaTeX to text, the part of pylatexenc 2.10 that answers use. What it does not know vanishes and
 * its arguments stay, as there. */
#include "core/rollout/reward_math.h"

#include <string.h>

enum { DEPTH_MAX = 64 };

typedef struct Latex {
    Str s;
    size_t at;
    int depth;
    bool good;
} Latex;

static const char *const symbols[][2] = {
    {"alpha", "α"}, {"beta", "β"}, {"gamma", "γ"}, {"delta", "δ"}, {"epsilon", "ϵ"},
    {"varepsilon", "ε"}, {"zeta", "ζ"}, {"eta", "η"}, {"theta", "θ"}, {"vartheta", "ϑ"},
    {"iota", "ι"}, {"kappa", "κ"}, {"lambda", "λ"}, {"mu", "μ"}, {"nu", "ν"}, {"xi", "ξ"},
    {"pi", "π"}, {"rho", "ρ"}, {"sigma", "σ"}, {"tau", "τ"}, {"upsilon", "υ"}, {"phi", "ϕ"},
    {"varphi", "φ"}, {"chi", "χ"}, {"psi", "ψ"}, {"omega", "ω"}, {"Gamma", "Γ"}, {"Delta", "Δ"},
    {"Theta", "Θ"}, {"Lambda", "Λ"}, {"Xi", "Ξ"}, {"Pi", "Π"}, {"Sigma", "Σ"}, {"Phi", "Φ"},
    {"Psi", "Ψ"}, {"Omega", "Ω"}, {"infty", "∞"}, {"cdot", "·"}, {"times", "×"}, {"div", "÷"},
    {"pm", "±"}, {"mp", "∓"}, {"cup", "∪"}, {"cap", "∩"}, {"leq", "≤"}, {"le", "≤"},
    {"geq", "≥"}, {"ge", "≥"}, {"neq", "≠"}, {"ne", "≠"}, {"approx", "≈"}, {"equiv", "≡"},
    {"sim", "∼"}, {"cong", "≅"}, {"propto", "∝"}, {"in", "∈"}, {"notin", "∉"}, {"subset", "⊂"},
    {"subseteq", "⊆"}, {"emptyset", "∅"}, {"varnothing", "∅"}, {"setminus", "∖"}, {"to", "→"},
    {"rightarrow", "→"}, {"leftarrow", "←"}, {"Rightarrow", "⇒"}, {"mapsto", "↦"},
    {"forall", "∀"}, {"exists", "∃"}, {"neg", "¬"}, {"land", "∧"}, {"lor", "∨"}, {"wedge", "∧"},
    {"vee", "∨"}, {"angle", "∠"}, {"circ", "∘"}, {"degree", "°"}, {"triangle", "△"},
    {"perp", "⊥"}, {"parallel", "∥"}, {"sum", "∑"}, {"prod", "∏"}, {"int", "∫"},
    {"partial", "∂"}, {"nabla", "∇"}, {"ldots", "…"}, {"dots", "…"}, {"cdots", "⋯"},
    {"ell", "ℓ"}, {"hbar", "ℏ"}, {"prime", "′"}, {"star", "⋆"}, {"ast", "∗"}, {"bullet", "∙"},
    {"sin", "sin"}, {"cos", "cos"}, {"tan", "tan"}, {"cot", "cot"}, {"sec", "sec"},
    {"csc", "csc"}, {"arcsin", "arcsin"}, {"arccos", "arccos"}, {"arctan", "arctan"},
    {"log", "log"}, {"ln", "ln"}, {"exp", "exp"}, {"lim", "lim"}, {"max", "max"}, {"min", "min"},
    {"gcd", "gcd"}, {"det", "det"}, {"dim", "dim"}, {"mod", "mod"}, {"quad", "  "},
    {"qquad", "    "}, {"lbrace", "{"}, {"rbrace", "}"}, {"langle", "⟨"}, {"rangle", "⟩"},
    {"lfloor", "⌊"}, {"rfloor", "⌋"}, {"lceil", "⌈"}, {"rceil", "⌉"}, {"vert", "|"},
    {"mid", "|"}, {"backslash", "\\"}, {"%", "%"}, {"$", "$"}, {"&", "&"}, {"#", "#"},
    {"_", "_"}, {"{", "{"}, {"}", "}"}, {",", " "}, {";", " "}, {":", " "}, {" ", " "},
    {">", " "}, {"!", ""}, {"\\", "\n"}, {"|", "‖"},
};

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
    convert(l, out, STR("}"));
    if (str_starts(left(l), STR("}"))) {
        l->at++;
    } else {
        l->good = false;
    }
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

static void macro(Latex *l, Text *out)
{
    Str name = macro_name(l);
    if (str_equal(name, STR("frac")) || str_equal(name, STR("nicefrac"))) {
        argument(l, out);
        (void)text_add_char(out, '/');
        argument(l, out);
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
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        if (str_equal(name, str_from(symbols[i][0]))) {
            (void)text_add_c(out, symbols[i][1]);
            return;
        }
    }
    /* fonts keep their argument, which follows; what is unknown vanishes */
}

/* Text specials of two and more characters; the length used, 0 when none stands here. */
static size_t special(Str s, Text *out)
{
    static const char *const table[][2] = {
        {"---", "—"}, {"--", "–"}, {"``", "“"}, {"''", "”"}, {"<<", "«"}, {">>", "»"},
        {"!`", "¡"}, {"?`", "¿"}, {"~", " "}};
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
            l->good = false;
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
