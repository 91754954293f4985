#include "tui/model.h"

#include <string.h>

static bool contains(const char *text, Str word)
{
    for (const char *at = text; *at; at++) {
        if (strncasecmp(at, word.p, word.n) == 0) {
            return true;
        }
    }
    return word.n == 0;
}

static const FilterField *find_field(const FilterField *fields, size_t count, Str name)
{
    for (size_t i = 0; i < count; i++) {
        if (str_equal_nocase(str_from(fields[i].name), name)) {
            return &fields[i];
        }
    }
    return NULL;
}

/* name:word, name>number, name<number; false in *is_term when it is a plain word. */
static bool match_term(Str word, const FilterField *fields, size_t count, bool *is_term)
{
    size_t at = 0;
    *is_term = false;
    while (at < word.n && word.p[at] != ':' && word.p[at] != '>' && word.p[at] != '<') {
        at++;
    }
    if (at == 0 || at >= word.n) {
        return false;
    }
    const FilterField *field = find_field(fields, count, str_slice(word, 0, at));
    Str value = str_slice(word, at + 1, word.n);
    double number = 0;
    if (!field) {
        return false;
    }
    *is_term = true;
    if (field->text) {
        return word.p[at] == ':' && contains(field->text, value);
    }
    if (str_starts(value, STR("v"))) {
        value = str_slice(value, 1, value.n);
    }
    if (!str_to_double(value, &number) || !field->number.known) {
        return false;
    }
    return word.p[at] == '>'   ? field->number.v > number
           : word.p[at] == '<' ? field->number.v < number
                               : field->number.v >= number && field->number.v <= number;
}

bool filter_match(const char *filter, const char *text, const FilterField *fields, size_t count)
{
    Str rest = str_from(filter);
    Str word;
    while (str_split(&rest, ' ', &word)) {
        bool inverse = word.n > 1 && word.p[0] == '!';
        bool is_term = false;
        if (word.n == 0) {
            continue;
        }
        word = inverse ? str_slice(word, 1, word.n) : word;
        bool hit = match_term(word, fields, count, &is_term);
        if (!is_term) {
            hit = contains(text, word);
        }
        if (hit == inverse) {
            return false;
        }
    }
    return true;
}
