#include "core/base/flags.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct Parse {
    const FlagSpec *specs;
    size_t count;
    int argc;
    char **argv;
    int at;
    bool *seen;
    Fault *fault;
} Parse;

const char *flags_dashes(const FlagSpec *spec)
{
    return spec->name[1] ? "--" : "-";
}

static const FlagSpec *find(const Parse *parse, Str name)
{
    for (size_t i = 0; i < parse->count; i++) {
        if (str_equal(str_from(parse->specs[i].name), name)) {
            return &parse->specs[i];
        }
    }
    return NULL;
}

static Err unknown(const Parse *parse, Str name)
{
    enum { FAR = 6 };
    const char *nearest = NULL;
    int best = FAR;
    for (size_t i = 0; i < parse->count; i++) {
        int distance = str_distance(str_from(parse->specs[i].name), name, FAR);
        if (distance < best) {
            best = distance;
            nearest = parse->specs[i].name;
        }
    }
    char hint[128];
    if (nearest && best <= 1 + (int)name.n / 4) {
        (void)str_format(hint, sizeof hint, "did you mean --%s?", nearest);
    } else {
        (void)str_format(hint, sizeof hint, "--help lists the flags");
    }
    return fault_set(parse->fault, ERR_ARG, hint, "unknown flag --%.*s", (int)name.n, name.p);
}

static Err store_number(const Parse *parse, const FlagSpec *spec, const char *value)
{
    double v = 0.0;
    int64_t whole = 0;
    bool good = spec->type == FLAG_INT ? str_to_i64(str_from(value), &whole)
                                       : str_to_double(str_from(value), &v);
    if (spec->type == FLAG_INT) {
        v = (double)whole;
    }
    const char *kind = spec->type == FLAG_INT ? "a whole number" : "a number";
    if (!good) {
        return fault_set(parse->fault, ERR_ARG, NULL, "%s%s wants %s, not \"%s\"",
                         flags_dashes(spec), spec->name, kind, value);
    }
    if (spec->min < spec->max && (v < spec->min || v > spec->max)) {
        return fault_set(parse->fault, ERR_ARG, NULL, "%s%s wants %s from %.15g to %.15g, not %s",
                         flags_dashes(spec), spec->name, kind, spec->min, spec->max, value);
    }
    if (spec->type == FLAG_INT) {
        *(int64_t *)spec->target = whole;
    } else {
        *(double *)spec->target = v;
    }
    return ERR_OK;
}

/* A word that could be a flag ends a list; a negative number does not. */
static bool looks_like_flag(const char *word)
{
    return word[0] == '-' && word[1] == '-';
}

/* "-n": one letter behind one dash. */
static bool is_letter_flag(const char *word)
{
    return word[0] == '-' && word[1] >= 'a' && word[1] <= 'z' && (!word[2] || word[2] == '=');
}

static Err store_list(Parse *parse, const FlagSpec *spec, const char *inline_value)
{
    FlagList *list = spec->target;
    size_t before = list->count;
    if (!list->items) {
        list->items = xcalloc(FLAG_LIST_MAX, sizeof *list->items);
        list->count = before = 0;
    }
    if (inline_value) {
        if (list->count == FLAG_LIST_MAX) {
            goto full;
        }
        list->items[list->count++] = inline_value;
        return ERR_OK;
    }
    while (parse->at + 1 < parse->argc && !looks_like_flag(parse->argv[parse->at + 1])) {
        if (list->count == FLAG_LIST_MAX) {
            goto full;
        }
        list->items[list->count++] = parse->argv[++parse->at];
    }
    if (list->count == before) {
        return fault_set(parse->fault, ERR_ARG, NULL, "--%s wants at least one value", spec->name);
    }
    return ERR_OK;
full:
    return fault_set(parse->fault, ERR_LIMIT, NULL, "--%s takes at most %d values", spec->name,
                     FLAG_LIST_MAX);
}

static Err store_value(Parse *parse, const FlagSpec *spec, const char *inline_value)
{
    if (spec->type == FLAG_LIST) {
        return store_list(parse, spec, inline_value);
    }
    if (spec->type == FLAG_SWITCH) {
        if (inline_value) {
            return fault_set(parse->fault, ERR_ARG, NULL, "--%s takes no value", spec->name);
        }
        *(bool *)spec->target = true;
        return ERR_OK;
    }
    const char *value = inline_value;
    if (!value) {
        if (parse->at + 1 >= parse->argc || looks_like_flag(parse->argv[parse->at + 1])) {
            return fault_set(parse->fault, ERR_ARG, NULL, "%s%s wants a value (%s)",
                             flags_dashes(spec), spec->name,
                             spec->value_name ? spec->value_name : "text");
        }
        value = parse->argv[++parse->at];
    }
    if (spec->type == FLAG_STRING) {
        *(const char **)spec->target = value;
        return ERR_OK;
    }
    return store_number(parse, spec, value);
}

static Err take_flag(Parse *parse)
{
    const char *word = parse->argv[parse->at];
    word += word[1] == '-' ? 2 : 1;
    const char *equals = strchr(word, '=');
    Str name = {word, equals ? (size_t)(equals - word) : strlen(word)};
    const FlagSpec *spec = find(parse, name);
    bool clear = false;
    if (!spec && str_starts(name, STR("no-"))) {
        spec = find(parse, str_slice(name, 3, name.n));
        clear = spec && spec->type == FLAG_SWITCH && !equals;
        spec = clear ? spec : NULL;
    }
    if (!spec) {
        return unknown(parse, name);
    }
    size_t index = (size_t)(spec - parse->specs);
    if (parse->seen[index] && spec->type != FLAG_LIST) {
        return fault_set(parse->fault, ERR_ARG, "give it once", "%s%s is given twice",
                         flags_dashes(spec), spec->name);
    }
    parse->seen[index] = true;
    if (spec->given) {
        *spec->given = true;
    }
    if (clear) {
        *(bool *)spec->target = false;
        return ERR_OK;
    }
    return store_value(parse, spec, equals ? equals + 1 : NULL);
}

Err flags_parse(const FlagSpec *specs, size_t count, int argc, char **argv, FlagRest *rest,
                Fault *fault)
{
    Parse parse = {.specs = specs, .count = count, .argc = argc, .argv = argv, .fault = fault};
    parse.seen = xcalloc(count ? count : 1, sizeof *parse.seen);
    *rest = (FlagRest){xcalloc((size_t)argc + 1, sizeof *rest->items), 0};
    Err err = ERR_OK;
    bool flags_over = false;
    for (parse.at = 1; parse.at < argc && err == ERR_OK; parse.at++) {
        const char *word = argv[parse.at];
        if (!flags_over && strcmp(word, "--") == 0) {
            flags_over = true;
        } else if (!flags_over &&
                   (looks_like_flag(word) ||
                    (is_letter_flag(word) && find(&parse, (Str){word + 1, 1})))) {
            err = take_flag(&parse);
        } else if (!flags_over && word[0] == '-' && word[1] != '\0' &&
                   !(word[1] >= '0' && word[1] <= '9')) {
            err = fault_set(fault, ERR_ARG, "flags are written --name", "unknown flag %s", word);
        } else {
            rest->items[rest->count++] = word;
        }
    }
    free(parse.seen);
    return err;
}

static bool asks_for_help(const FlagSpec *specs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(specs[i].name, "help") == 0) {
            return *(const bool *)specs[i].target;
        }
    }
    return false;
}

FlagsEnd flags_command(const FlagCommand *command, const FlagSpec *specs, size_t count, int argc,
                       char **argv, FlagRest *rest, Fault *fault)
{
    FlagsEnd end = FLAGS_GO;
    Err err = flags_parse(specs, count, argc, argv, rest, fault);
    if (err == ERR_OK && asks_for_help(specs, count)) {
        fputs(command->usage, stdout);
        fputc('\n', stdout);
        flags_help(specs, count, stdout);
        end = FLAGS_HELP;
    } else if (err == ERR_OK && (rest->count < command->least ||
                                 (command->most >= 0 && rest->count > command->most))) {
        err = command->wants
                  ? fault_set(fault, ERR_ARG, command->hint, "%s", command->wants)
                  : fault_set(fault, ERR_ARG, command->hint, "unexpected word %s", rest->items[0]);
    }
    if (err != ERR_OK || end == FLAGS_HELP) {
        flags_free(specs, count, rest);
    }
    return err != ERR_OK ? FLAGS_WRONG : end;
}

void flags_free(const FlagSpec *specs, size_t count, FlagRest *rest)
{
    for (size_t i = 0; i < count; i++) {
        if (specs[i].type == FLAG_LIST) {
            FlagList *list = specs[i].target;
            free(list->items);
            *list = (FlagList){NULL, 0};
        }
    }
    free(rest->items);
    *rest = (FlagRest){NULL, 0};
}

/* printf pads by bytes; "…" is three of them and one column. */
static int pad(const char *text, int columns)
{
    int width = columns;
    for (const char *at = text; *at; at++) {
        width += ((unsigned char)*at & 0xC0) == 0x80;
    }
    return width;
}

void flags_help(const FlagSpec *specs, size_t count, FILE *out)
{
    enum { COLUMNS = 38 };
    for (size_t i = 0; i < count; i++) {
        const FlagSpec *spec = &specs[i];
        char left[64];
        const char *value = spec->value_name ? spec->value_name : "VALUE";
        if (spec->type == FLAG_SWITCH) {
            (void)str_format(left, sizeof left, "%s%s", flags_dashes(spec), spec->name);
        } else {
            (void)str_format(left, sizeof left, "%s%s %s%s", flags_dashes(spec), spec->name, value,
                             spec->type == FLAG_LIST ? "…" : "");
        }
        fprintf(out, "  %-*s %s\n", pad(left, COLUMNS), left, spec->help ? spec->help : "");
    }
}
