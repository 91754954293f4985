/* The system's PCRE2 follows its own Unicode version and its \s takes U+180E in; so \s, \p{L} and
 * \p{N} are replaced by the ranges of the reference before compiling. */
#include "core/model/pretoken_pcre.h"

#include "core/base/mem.h"
#include "core/model/unicode_data.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERN_BYTES_MAX = 1 << 20, MATCH_LIMIT = 1000000, DEPTH_LIMIT = 10000 };

struct PretokenPattern {
    pcre2_code *code;
    pcre2_match_context *context;
};

static void add_ranges(Text *out, const UnicodeRange *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        (void)text_addf(out, "\\x{%X}-\\x{%X}", ranges[i].first, ranges[i].last);
    }
}

static void add_class(Text *out, char which)
{
    switch (which) {
    case 'L':
        add_ranges(out, unicode_letters, unicode_letters_count);
        break;
    case 'N':
        add_ranges(out, unicode_numbers, unicode_numbers_count);
        break;
    default:
        (void)text_add_c(out, "\\t-\\r \\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}"
                              "\\x{202F}\\x{205F}\\x{3000}");
    }
}

/* Rewrites the classes; false when one stands where it cannot be spelt out. */
static bool spell_out(Str pattern, Text *out)
{
    bool inside = false; /* a bracketed class */
    for (size_t i = 0; i < pattern.n; i++) {
        Str rest = {pattern.p + i, pattern.n - i};
        bool letter = str_starts(rest, STR("\\p{L}"));
        bool number = str_starts(rest, STR("\\p{N}"));
        bool space = str_starts(rest, STR("\\s"));
        bool no_space = str_starts(rest, STR("\\S"));
        if (no_space && inside) {
            return false;
        }
        if (letter || number || space || no_space) {
            if (!inside) {
                (void)text_add_c(out, no_space ? "[^" : "[");
            }
            add_class(out, letter ? 'L' : number ? 'N' : 's');
            if (!inside) {
                (void)text_add_char(out, ']');
            }
            i += letter || number ? 4 : 1;
            continue;
        }
        if (pattern.p[i] == '\\' && i + 1 < pattern.n) {
            (void)text_add_char(out, pattern.p[i++]);
        } else if (pattern.p[i] == '[' && !inside) {
            inside = true;
        } else if (pattern.p[i] == ']' && inside) {
            inside = false;
        }
        (void)text_add_char(out, pattern.p[i]);
    }
    return !out->cut;
}

Err pretoken_pattern_new(Str pattern, const char *path, PretokenPattern **out, Fault *fault)
{
    static const char hint[] = "use a checkpoint whose tokenizer is byte-level BPE";
    Text text;
    int error = 0;
    PCRE2_SIZE at = 0;
    *out = NULL;
    text_init(&text, PATTERN_BYTES_MAX);
    if (!spell_out(pattern, &text)) {
        text_free(&text);
        return fault_set(fault, ERR_UNSUPPORTED, hint,
                         "%s: the Split pattern has \\S inside a class or is too long", path);
    }
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)text_c(&text), text.n,
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK, &error, &at, NULL);
    text_free(&text);
    if (code == NULL) {
        PCRE2_UCHAR message[128] = {0};
        (void)pcre2_get_error_message(error, message, sizeof message);
        return fault_set(fault, ERR_UNSUPPORTED, hint,
                         "%s: the Split pattern does not compile: %s", path, (char *)message);
    }
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* without it matching is only slower */
    PretokenPattern *p = xcalloc(1, sizeof *p);
    p->code = code;
    p->context = pcre2_match_context_create(NULL);
    (void)pcre2_set_match_limit(p->context, MATCH_LIMIT);
    (void)pcre2_set_depth_limit(p->context, DEPTH_LIMIT);
    *out = p;
    return ERR_OK;
}

void pretoken_pattern_free(PretokenPattern *pattern)
{
    if (pattern == NULL) {
        return;
    }
    pcre2_code_free(pattern->code);
    pcre2_match_context_free(pattern->context);
    free(pattern);
}

bool pretoken_pattern_split(const PretokenPattern *pattern, Str text, PretokenEmit emit,
                            void *user)
{
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(pattern->code, NULL);
    size_t done = 0; /* text before it has been emitted */
    size_t from = 0;
    bool good = match != NULL;
    while (good && from <= text.n && text.n > 0) {
        int rc = pcre2_match(pattern->code, (PCRE2_SPTR)text.p, text.n, from, PCRE2_NO_UTF_CHECK,
                             match, pattern->context);
        if (rc == PCRE2_ERROR_NOMATCH) {
            break;
        }
        if (rc < 0) {
            good = false;
            break;
        }
        const PCRE2_SIZE *place = pcre2_get_ovector_pointer(match);
        if (place[1] <= place[0]) { /* empty: step over one character */
            from = place[0] + 1;
            while (from < text.n && ((unsigned char)text.p[from] & 0xC0) == 0x80) {
                from++;
            }
            continue;
        }
        if (place[0] > done) {
            good = emit(user, (Str){text.p + done, place[0] - done});
        }
        good = good && emit(user, (Str){text.p + place[0], place[1] - place[0]});
        done = from = place[1];
    }
    if (good && done < text.n) {
        good = emit(user, (Str){text.p + done, text.n - done});
    }
    pcre2_match_data_free(match);
    return good;
}
