/* One walk over subcommands and their flags per output. About 120 flags; written once at build
 * time, so it is plain rather than fast. */
#include "core/app/completion.h"

#include "core/app/app.h"
#include "store/topics.h"

#include <stdio.h>
#include <string.h>

enum { COMPLETION_SPECS = 1 };

static void completion_specs(bool *help, FlagSpec specs[COMPLETION_SPECS])
{
    specs[0] = (FlagSpec){"help", FLAG_SWITCH, help, 0, 0, NULL, "this list", NULL};
}

void cmd_completion_flags(FlagVisit *visit, void *to)
{
    bool help = false;
    FlagSpec specs[COMPLETION_SPECS];
    completion_specs(&help, specs);
    visit(specs, COMPLETION_SPECS, to);
}

/* What follows a flag, as far as a shell can complete it. */
typedef enum ValueKind { VALUE_NONE, VALUE_FILE, VALUE_DIR, VALUE_TEXT } ValueKind;

static ValueKind value_kind(const FlagSpec *spec)
{
    if (spec->type == FLAG_SWITCH) {
        return VALUE_NONE;
    }
    const char *name = spec->value_name ? spec->value_name : "";
    if (strcmp(name, "DIR") == 0) {
        return VALUE_DIR;
    }
    bool file = strstr(name, "FILE") || strcmp(name, "PROGRAM") == 0;
    return file ? VALUE_FILE : VALUE_TEXT;
}

static const char *value_name(const FlagSpec *spec)
{
    return spec->value_name ? spec->value_name : "VALUE";
}

/* Writes `text` with a backslash before each character of `special`. */
static void put_escaped(FILE *out, const char *text, const char *special)
{
    for (const char *p = text ? text : ""; *p; p++) {
        if (strchr(special, *p)) {
            fputc('\\', out);
        }
        fputc(*p, out);
    }
}

/* Inside '…' of a POSIX shell or zsh; `special` gets a backslash of the inner language. */
static void put_quoted(FILE *out, const char *text, const char *special)
{
    for (const char *p = text ? text : ""; *p; p++) {
        if (*p == '\'') {
            fputs("'\\''", out);
            continue;
        }
        if (strchr(special, *p)) {
            fputc('\\', out);
        }
        fputc(*p, out);
    }
}

/* Words that the first operands of a subcommand may be; a line for nothing else than that. */
static void put_words(FILE *out, const Subcommand *sub)
{
    size_t count = 0;
    switch (sub->operands) {
    case OPERANDS_NONE:
    case OPERANDS_LOG: break;
    case OPERANDS_LOG_TOPIC: {
        const Topic *topics = topics_all(&count);
        for (size_t i = 0; i < count; i++) {
            fprintf(out, "%s%s", i ? " " : "", topics[i].name);
        }
        break;
    }
    case OPERANDS_VERB:
    case OPERANDS_VERB_FILE: {
        const char *const *verbs = sub->verbs(&count);
        for (size_t i = 0; i < count; i++) {
            fprintf(out, "%s%s", i ? " " : "", verbs[i]);
        }
        break;
    }
    case OPERANDS_SHELL: fputs("bash zsh fish man", out); break;
    }
}

static bool takes_log(OperandKind kind)
{
    return kind == OPERANDS_LOG || kind == OPERANDS_LOG_TOPIC;
}

/* Where a log or file stands among the words of the line, for bash. */
static const char *file_place(OperandKind kind)
{
    return takes_log(kind) ? "2" : kind == OPERANDS_VERB_FILE ? "3" : "0";
}

/* ---- bash --------------------------------------------------------------------------------- */

typedef struct BashList { /* writes the names of flags whose value is of one kind */
    FILE *out;
    bool all;
    ValueKind kind;
} BashList;

static void bash_names(const FlagSpec *specs, size_t count, void *to)
{
    const BashList *list = to;
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        if (list->all || value_kind(&specs[i]) == list->kind) {
            fprintf(list->out, "%s%s%s", first ? "" : " ", flags_dashes(&specs[i]), specs[i].name);
            first = false;
        }
    }
}

static void bash_list(const Subcommand *sub, FILE *out, const char *variable, BashList list)
{
    list.out = out;
    fprintf(out, "        %s=\"", variable);
    sub->flags(bash_names, &list);
    fputs("\"\n", out);
}

static void write_bash(FILE *out)
{
    size_t count = 0;
    const Subcommand *subs = app_subcommands(&count);
    fputs("# bash completion of rolltop; written by: rolltop completion bash\n"
          "_rolltop() {\n"
          "    local cur prev words flags='' files='' dirs='' texts='' logs=0\n"
          "    cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=''\n"
          "    COMPREPLY=()\n"
          "    case \"$COMP_CWORD:${COMP_WORDS[1]}\" in\n"
          "    1:*)\n"
          "        words=\"",
          out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "%s ", subs[i].name);
    }
    fputs("--help --version\"\n        ;;\n", out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "    *:%s)\n", subs[i].name);
        bash_list(&subs[i], out, "flags", (BashList){.all = true});
        bash_list(&subs[i], out, "files", (BashList){.kind = VALUE_FILE});
        bash_list(&subs[i], out, "dirs", (BashList){.kind = VALUE_DIR});
        bash_list(&subs[i], out, "texts", (BashList){.kind = VALUE_TEXT});
        fputs("        words=\"", out);
        put_words(out, &subs[i]);
        fprintf(out, "\"\n        logs=%s\n        ;;\n", file_place(subs[i].operands));
    }
    fputs("    esac\n"
          "    case \" $files \" in *\" $prev \"*)\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
          "        return ;;\n"
          "    esac\n"
          "    case \" $dirs \" in *\" $prev \"*)\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        COMPREPLY=($(compgen -d -- \"$cur\"))\n"
          "        return ;;\n"
          "    esac\n"
          "    case \" $texts \" in *\" $prev \"*) return ;; esac\n"
          "    if [[ $cur == -* ]]; then\n"
          "        COMPREPLY=($(compgen -W \"$flags $words\" -- \"$cur\"))\n"
          "    elif [[ $COMP_CWORD -eq $logs || ( $logs == 3 && $COMP_CWORD -gt 3 ) ]]; then\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
          "    else\n"
          "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
          "    fi\n"
          "}\n"
          "complete -F _rolltop rolltop\n",
          out);
}

/* ---- zsh ---------------------------------------------------------------------------------- */

static void zsh_flags(const FlagSpec *specs, size_t count, void *to)
{
    FILE *out = to;
    for (size_t i = 0; i < count; i++) {
        const FlagSpec *spec = &specs[i];
        fprintf(out, " \\\n            '%s%s%s[", spec->type == FLAG_LIST ? "*" : "",
                flags_dashes(spec), spec->name);
        put_quoted(out, spec->help, "[]:\\");
        fputc(']', out);
        ValueKind kind = value_kind(spec);
        if (kind != VALUE_NONE) {
            fputc(':', out);
            put_quoted(out, value_name(spec), "[]:\\");
            fputs(kind == VALUE_FILE ? ":_files" : kind == VALUE_DIR ? ":_files -/" : ": ", out);
        }
        fputc('\'', out);
    }
}

static void zsh_operands(FILE *out, const Subcommand *sub)
{
    OperandKind kind = sub->operands;
    if (takes_log(kind)) {
        fputs(" \\\n            '1:log:_files'", out);
    }
    if (kind == OPERANDS_LOG_TOPIC || kind == OPERANDS_VERB || kind == OPERANDS_VERB_FILE ||
        kind == OPERANDS_SHELL) {
        fprintf(out, " \\\n            '%s:word:(", kind == OPERANDS_LOG_TOPIC ? "2" : "1");
        put_words(out, sub);
        fputs(")'", out);
    }
    if (kind == OPERANDS_VERB) {
        fputs(" \\\n            '2:target: '", out);
    }
    if (kind == OPERANDS_VERB_FILE) {
        fputs(" \\\n            '*:file:_files'", out);
    }
}

static void write_zsh(FILE *out)
{
    size_t count = 0;
    const Subcommand *subs = app_subcommands(&count);
    fputs("#compdef rolltop\n"
          "# zsh completion of rolltop; written by: rolltop completion zsh\n"
          "_rolltop() {\n"
          "    local -a subcommands\n"
          "    subcommands=(\n",
          out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "        '%s:", subs[i].name);
        put_quoted(out, subs[i].help, ":\\");
        fputs("'\n", out);
    }
    fputs("    )\n"
          "    if (( CURRENT == 2 )); then\n"
          "        _describe -t commands subcommand subcommands\n"
          "        _arguments '--help[list the subcommands]' '--version[print the version]'\n"
          "        return\n"
          "    fi\n"
          "    local sub=$words[2]\n"
          "    shift words\n"
          "    (( CURRENT-- ))\n"
          "    case $sub in\n",
          out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "    %s)\n        _arguments", subs[i].name);
        subs[i].flags(zsh_flags, out);
        zsh_operands(out, &subs[i]);
        fputs("\n        ;;\n", out);
    }
    /* Autoloaded, the file is the function's body; sourced, it registers itself. */
    fputs("    esac\n"
          "}\n"
          "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n"
          "    _rolltop \"$@\"\n"
          "else\n"
          "    compdef _rolltop rolltop\n"
          "fi\n",
          out);
}

/* ---- fish --------------------------------------------------------------------------------- */

typedef struct FishAt {
    FILE *out;
    const char *sub;
} FishAt;

static void fish_flags(const FlagSpec *specs, size_t count, void *to)
{
    const FishAt *at = to;
    for (size_t i = 0; i < count; i++) {
        ValueKind kind = value_kind(&specs[i]);
        fprintf(at->out, "complete -c rolltop -n '__fish_seen_subcommand_from %s' -%c %s%s -d '",
                at->sub, specs[i].name[1] ? 'l' : 's', specs[i].name,
                kind == VALUE_NONE   ? ""
                : kind == VALUE_FILE ? " -r -F"
                : kind == VALUE_DIR  ? " -x -a '(__fish_complete_directories)'"
                                     : " -x");
        put_escaped(at->out, specs[i].help, "'\\");
        fputs("'\n", at->out);
    }
}

static void write_fish(FILE *out)
{
    size_t count = 0;
    const Subcommand *subs = app_subcommands(&count);
    fputs("# fish completion of rolltop; written by: rolltop completion fish\n"
          "complete -c rolltop -f\n"
          "complete -c rolltop -n __fish_use_subcommand -l help -d 'list the subcommands'\n"
          "complete -c rolltop -n __fish_use_subcommand -l version -d 'print the version'\n",
          out);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "complete -c rolltop -n __fish_use_subcommand -a %s -d '", subs[i].name);
        put_escaped(out, subs[i].help, "'\\");
        fputs("'\n", out);
        subs[i].flags(fish_flags, &(FishAt){out, subs[i].name});
        if (takes_log(subs[i].operands) || subs[i].operands == OPERANDS_VERB_FILE) {
            fprintf(out, "complete -c rolltop -n '__fish_seen_subcommand_from %s' -F\n",
                    subs[i].name);
        }
        if (subs[i].operands != OPERANDS_NONE && subs[i].operands != OPERANDS_LOG) {
            fprintf(out, "complete -c rolltop -n '__fish_seen_subcommand_from %s' -a '",
                    subs[i].name);
            put_words(out, &subs[i]);
            fputs("'\n", out);
        }
    }
}

/* ---- man ---------------------------------------------------------------------------------- */

/* Text of roff: dashes are minus signs, and a line that begins with a dot or quote is none. */
static void put_roff(FILE *out, const char *text)
{
    if (text[0] == '.' || text[0] == '\'') {
        fputs("\\&", out);
    }
    for (const char *p = text; *p; p++) {
        fputs(*p == '\\' ? "\\e" : *p == '-' ? "\\-" : (const char[]){*p, '\0'}, out);
    }
}

typedef struct ManSame { /* is a flag, with the same words, one of these, too? */
    const FlagSpec *flag;
    bool found;
} ManSame;

static void man_same(const FlagSpec *specs, size_t count, void *to)
{
    ManSame *same = to;
    for (size_t i = 0; i < count && !same->found; i++) {
        same->found = strcmp(specs[i].name, same->flag->name) == 0 &&
                      strcmp(specs[i].help, same->flag->help) == 0;
    }
}

typedef struct ManList {
    FILE *out;
    const Subcommand *also; /* what its chapter says need not be said again; may be NULL */
} ManList;

static void man_flags(const FlagSpec *specs, size_t count, void *to)
{
    const ManList *list = to;
    FILE *out = list->out;
    for (size_t i = 0; i < count; i++) {
        ManSame same = {&specs[i], false};
        if (list->also) {
            list->also->flags(man_same, &same);
        }
        if (same.found) {
            continue;
        }
        fputs(".TP\n\\fB", out);
        put_roff(out, flags_dashes(&specs[i]));
        put_roff(out, specs[i].name);
        fputs("\\fR", out);
        if (specs[i].type != FLAG_SWITCH) {
            fputs(" \\fI", out);
            put_roff(out, value_name(&specs[i]));
            fprintf(out, "\\fR%s", specs[i].type == FLAG_LIST ? " ..." : "");
        }
        fputc('\n', out);
        put_roff(out, specs[i].help);
        fputc('\n', out);
    }
    if (list->also) {
        fprintf(out, ".PP\nAnd those of \\fBrolltop %s\\fR that \\fB\\-\\-help\\fR lists.\n",
                list->also->name);
    }
}

static const Subcommand *named(const Subcommand *subs, size_t count, const char *name)
{
    for (size_t i = 0; i < count && name; i++) {
        if (strcmp(subs[i].name, name) == 0) {
            return &subs[i];
        }
    }
    return NULL;
}

static void write_man(FILE *out)
{
    size_t count = 0;
    const Subcommand *subs = app_subcommands(&count);
    fputs(".SH FLAGS\n"
          "A number in parentheses is the default.\n"
          "Flags are written \\fB\\-\\-name value\\fR or \\fB\\-\\-name=value\\fR;\n"
          "\\fB\\-\\-no\\-name\\fR clears a switch.\n",
          out);
    for (size_t i = 0; i < count; i++) {
        ManList list = {out, named(subs, count, subs[i].also)};
        fprintf(out, ".SS rolltop %s\n", subs[i].name);
        put_roff(out, subs[i].help);
        fputc('\n', out);
        subs[i].flags(man_flags, &list);
    }
}

/* ---- the subcommand ----------------------------------------------------------------------- */

typedef struct Writer {
    const char *name;
    void (*write)(FILE *out);
} Writer;

static const Writer writers[] = {
    {"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}, {"man", write_man}};

static Err write_for(const char *name, Fault *fault)
{
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        if (strcmp(writers[i].name, name) == 0) {
            writers[i].write(stdout);
            if (fflush(stdout) != 0) {
                return fault_set(fault, ERR_IO, NULL, "the script could not be written");
            }
            return ERR_OK;
        }
    }
    return fault_set(fault, ERR_ARG, "there are bash, zsh, fish and man",
                     "no completion for \"%s\"", name);
}

int cmd_completion(int argc, char **argv)
{
    static const FlagCommand command = {
        "usage: rolltop completion bash|zsh|fish|man\n\n"
        "Prints the completion script of a shell, or the manual's chapter of flags.\n"
        "bash, for this session: source <(rolltop completion bash)\n",
        1, 1, "completion wants the name of one shell", "there are bash, zsh, fish and man"};
    bool help = false;
    FlagSpec specs[COMPLETION_SPECS];
    completion_specs(&help, specs);
    FlagRest rest;
    int status;
    if (!app_parse(&command, specs, COMPLETION_SPECS, argc, argv, &rest, &status)) {
        return status;
    }
    Fault fault = {0};
    Err err = write_for(rest.items[0], &fault);
    flags_free(specs, COMPLETION_SPECS, &rest);
    return err ? app_fail(&fault, APP_USAGE) : APP_OK;
}
