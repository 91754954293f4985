#include "core/app/demo_flags.h"

#include "core/app/app.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { OWN = 9, HELP_COLUMNS = 96 };

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Settled by the demo: its task and model, its local engines, and the end of both. */
static const char *const settled[] = {
    "hf-checkpoint", "load", "prompt-data", "input-key", "label-key", "metadata-key",
    "rm-type", "eval-rm-type", "eval-prompt-data", "eval-input-key", "eval-label-key",
    "num-rollout", "num-epoch", "start-rollout-id", "resume", "local-engines", "rollout-url",
    "rollout-external-engine-addrs", "sglang-router-ip", "sglang-router-port", "engines-file",
    "engines-dns", "engines-dns-server", "engines-from-frontend", "discover-interval",
    "discover-gone-looks", "update-weight-local-checkpoint-dir"};

static void own_specs(DemoFlags *f, FlagSpec *out)
{
    const FlagSpec own[OWN] = {
        {"seed", FLAG_INT, &f->seed, 0, 1e9, "S", "of base model, prompts and sampling (1)", NULL},
        {"engines", FLAG_INT, &f->engines, 1, 64, "N", "local engines (3)", NULL},
        {"steps", FLAG_INT, &f->steps, 1, 1e6, "N", "at most (default: the task's bound)", NULL},
        {"log", FLAG_STRING, &f->log, 0, 0, "FILE", "default: under the state directory", NULL},
        {"run-id", FLAG_STRING, &f->run_id, 0, 0, "ID", "identifier of the run", NULL},
        {"headless", FLAG_SWITCH, &f->headless, 0, 0, NULL, "one plain line per step", NULL},
        {"keep", FLAG_SWITCH, &f->keep, 0, 0, NULL, "keep checkpoints after a good end", NULL},
        {"incident", FLAG_SWITCH, &f->incident, 0, 0, NULL,
         "no run: the console on the recorded incident", NULL},
        {"help", FLAG_SWITCH, &f->help, 0, 0, NULL, "this list", NULL}};
    memcpy(out, own, sizeof own);
}

static const FlagSpec *find(const FlagSpec *specs, size_t count, Str name)
{
    for (size_t i = 0; i < count; i++) {
        if (str_equal(str_from(specs[i].name), name)) {
            return &specs[i];
        }
    }
    return NULL;
}

static bool is_settled(Str name)
{
    for (size_t i = 0; i < COUNT(settled); i++) {
        if (str_equal(str_from(settled[i]), name)) {
            return true;
        }
    }
    return false;
}

static void init(DemoFlags *f)
{
    *f = (DemoFlags){.seed = 1, .engines = 3, .own_count = OWN, .count = OWN};
    run_flags_init(&f->run);
    f->specs = xcalloc(OWN + f->run.used_count, sizeof *f->specs);
    f->given = xcalloc(OWN + f->run.used_count, sizeof *f->given);
    own_specs(f, f->specs);
    for (size_t i = 0; i < f->run.used_count; i++) {
        Str name = str_from(f->run.specs[i].name);
        if (!is_settled(name) && !find(f->specs, OWN, name)) {
            f->specs[f->count++] = f->run.specs[i];
        }
    }
    for (size_t i = 0; i < f->count; i++) {
        f->specs[i].given = &f->given[i];
    }
}

/* A flag that the run has and the demo settles is known, so it is not told as a misspelt one. */
static Err refuse_settled(int argc, char **argv, Fault *fault)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *equals = strchr(argv[i], '=');
        size_t n = equals ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        if (n > 2 && strncmp(argv[i], "--", 2) == 0 && is_settled((Str){argv[i] + 2, n - 2})) {
            return fault_set(fault, ERR_ARG, "`rolltop run` takes it; rolltop demo --help",
                             "the demo settles %.*s itself", (int)n, argv[i]);
        }
    }
    return ERR_OK;
}

Err demo_flags_parse(DemoFlags *f, int argc, char **argv, Fault *fault)
{
    init(f);
    Err err = refuse_settled(argc, argv, fault);
    err = err ? err : flags_parse(f->specs, f->count, argc, argv, &f->rest, fault);
    if (err == ERR_OK && f->rest.count > 0) {
        err = fault_set(fault, ERR_ARG, "demo takes flags only", "unexpected word %s",
                        f->rest.items[0]);
    }
    return err;
}

void demo_flags_free(DemoFlags *f)
{
    flags_free(f->specs, f->count, &f->rest);
    free(f->specs);
    free(f->given);
    run_flags_free(&f->run);
    *f = (DemoFlags){0};
}

void demo_flags_help(FILE *out)
{
    DemoFlags f;
    init(&f);
    fputs("usage: rolltop demo [FLAGS]\n\n", out);
    flags_help(f.specs, f.own_count, out);
    fputs("\nAnd those of `rolltop run` (its --help says what they mean); one that is given stands"
          " above\nthe demo's own choice:\n ", out);
    int column = 1;
    for (size_t i = f.own_count; i < f.count; i++) {
        int width = (int)strlen(f.specs[i].name) + 3;
        if (column + width > HELP_COLUMNS) {
            fputs("\n ", out);
            column = 1;
        }
        fprintf(out, " --%s", f.specs[i].name);
        column += width;
    }
    fputc('\n', out);
    demo_flags_free(&f);
}

bool demo_flags_given(const DemoFlags *f, const char *name)
{
    const FlagSpec *spec = find(f->specs + f->own_count, f->count - f->own_count, str_from(name));
    return spec && *spec->given;
}

static void add_value(const FlagSpec *spec, const char *value,
                      void (*add)(const char *word, void *to), void *to)
{
    char *word = xasprintf("--%s=%s", spec->name, value);
    add(word, to);
    free(word);
}

static void add_flag(const FlagSpec *spec, void (*add)(const char *word, void *to), void *to)
{
    char text[80];
    switch (spec->type) {
    case FLAG_SWITCH:
        (void)str_format(text, sizeof text, "--%s%s", *(const bool *)spec->target ? "" : "no-",
                         spec->name);
        add(text, to);
        break;
    case FLAG_INT:
        (void)str_format(text, sizeof text, "%lld", (long long)*(const int64_t *)spec->target);
        add_value(spec, text, add, to);
        break;
    case FLAG_DOUBLE:
        (void)str_format(text, sizeof text, "%.17g", *(const double *)spec->target);
        add_value(spec, text, add, to);
        break;
    case FLAG_STRING: add_value(spec, *(const char *const *)spec->target, add, to); break;
    case FLAG_LIST: {
        const FlagList *list = spec->target;
        for (size_t i = 0; i < list->count; i++) {
            add_value(spec, list->items[i], add, to);
        }
        break;
    }
    }
}

void demo_flags_words(const DemoFlags *f, void (*add)(const char *word, void *to), void *to)
{
    for (size_t i = f->own_count; i < f->count; i++) {
        if (f->given[i]) {
            add_flag(&f->specs[i], add, to);
        }
    }
}

void cmd_demo_flags(FlagVisit *visit, void *to)
{
    DemoFlags f;
    init(&f);
    visit(f.specs, f.count, to);
    demo_flags_free(&f);
}
