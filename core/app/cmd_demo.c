/* `rolltop demo`: makes a base checkpoint and prompts, then is exactly a `run` with these
 * settings. */
#include "core/app/app.h"
#include "core/app/console.h"
#include "core/app/example.h"
#include "core/app/run_main.h"
#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/train/demo_task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORDS_MAX = 96, WORD_MAX = 32 };

typedef struct DemoFlags {
    int64_t seed, engines, steps;
    const char *log, *run_id, *mode;
    bool headless, keep, engine_faults, incident, help;
} DemoFlags;

typedef struct Words { /* the command line of the run that the demo is */
    char *argv[WORDS_MAX + 1];
    int argc;
} Words;

static void add(Words *words, const char *word)
{
    if (words->argc < WORDS_MAX) {
        words->argv[words->argc++] = xstrdup(word);
    }
}

static void add_pair(Words *words, const char *flag, const char *value)
{
    add(words, flag);
    add(words, value);
}

static void add_number(Words *words, const char *flag, double value)
{
    char text[WORD_MAX];
    (void)str_format(text, sizeof text, "%.12g", value);
    add_pair(words, flag, text);
}

static void add_path(Words *words, const char *flag, const char *dir, const char *name)
{
    char *path = fs_join(dir, name);
    if (flag) {
        add(words, flag);
    }
    add(words, path);
    free(path);
}

static void words_free(Words *words)
{
    for (int i = 0; i < words->argc; i++) {
        free(words->argv[i]);
    }
}

static void write_words(Words *w, const DemoFlags *f, const char *run_id, const DemoTask *task,
                        const char *log, const char *dir)
{
    add(w, "run");
    add_pair(w, "--name", "demo");
    add_pair(w, "--log", log);
    add_pair(w, "--run-id", run_id);
    if (f->headless) {
        add(w, "--headless");
    }
    add_path(w, "--hf-checkpoint", dir, "base");
    add_path(w, "--prompt-data", dir, "train.jsonl");
    add_pair(w, "--input-key", task->input_key);
    add_pair(w, "--label-key", task->label_key);
    add_pair(w, "--rm-type", task->rm_type);
    add_pair(w, "--eval-rm-type", task->eval_rm_type);
    add_pair(w, "--eval-prompt-data", "held-out");
    add_path(w, NULL, dir, "eval.jsonl");
    add_number(w, "--eval-interval", task->eval_interval);
    add_number(w, "--stop-at-eval-reward", task->reached);
    add_number(w, "--rollout-batch-size", task->rollout_batch_size);
    add_number(w, "--n-samples-per-prompt", task->n_samples_per_prompt);
    add_number(w, "--global-batch-size", task->global_batch_size);
    add_number(w, "--rollout-max-response-len", task->max_response_len);
    if (!task->std_normalization) {
        add(w, "--disable-grpo-std-normalization");
    }
    add(w, "--rollout-shuffle");
    add(w, "--rollout-skip-special-tokens"); /* the answer is the text before the end token */
    add_number(w, "--num-rollout", f->steps > 0 ? (double)f->steps : task->max_steps);
    add_number(w, "--lr", task->lr);
    add_number(w, "--weight-decay", 0.0);
    add_number(w, "--seed", (double)f->seed);
    add_number(w, "--rollout-seed", (double)f->seed);
    add_number(w, "--local-engines", (double)f->engines);
    add_number(w, "--sglang-server-concurrency", 64);
    add_pair(w, "--publish-dtype", "f32");
    if (f->mode) {
        add_pair(w, "--update-weight-mode", f->mode);
    }
    if (f->engine_faults) {
        add(w, "--engine-faults");
    }
    w->argv[w->argc] = NULL;
}

/* Of run and log, where the flags name none: taken once, for making the task takes a second. */
static char *demo_name(void)
{
    char stamp[32];
    time_t now = (time_t)(clock_wall_us() / 1000000);
    struct tm parts;
    gmtime_r(&now, &parts);
    (void)strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &parts);
    return xasprintf("demo-%s", stamp);
}

static char *default_log(const char *name, Fault *fault)
{
    char *state = NULL;
    if (fs_state_dir(&state, fault) != ERR_OK) {
        return NULL;
    }
    char *path = xasprintf("%s/%s.db", state, name);
    free(state);
    return path;
}

static Err make_task(const DemoFlags *f, const char *log, const char *dir, Fault *fault)
{
    if (fs_exists(log)) {
        return fault_set(fault, ERR_EXISTS, "name another file", "--log %s is there already", log);
    }
    Err err = fs_mkdirs(dir, 0755, fault);
    if (err == ERR_OK) {
        int64_t start = clock_mono_us();
        long cores = sysconf(_SC_NPROCESSORS_ONLN);
        err = demo_task_make(dir, (uint64_t)f->seed, cores > 0 ? (int)cores : 1, fault);
        if (err == ERR_OK) {
            printf("base model and prompts made in %.1f s\n",
                   (double)(clock_mono_us() - start) / 1e6);
            fflush(stdout);
        }
    }
    return err;
}

static int demo(const DemoFlags *f)
{
    Fault fault = {0};
    char *name = demo_name();
    char *log = f->log ? xstrdup(f->log) : default_log(name, &fault);
    if (!log) {
        free(name);
        return app_fail(&fault, APP_USAGE);
    }
    char *work = xasprintf("%s.d", log);
    char *dir = fs_join(work, "task");
    bool was_there = fs_exists(work);
    const DemoTask task = demo_task_default();
    int status = APP_USAGE;
    if (make_task(f, log, dir, &fault) != ERR_OK) {
        status = app_fail(&fault, APP_USAGE);
    } else {
        Words words = {.argc = 0};
        write_words(&words, f, f->run_id ? f->run_id : name, &task, log, dir);
        status = run_main(words.argc, words.argv, "demo");
        words_free(&words);
    }
    /* The log stays for replay; checkpoints beside it are only good for --resume. */
    bool started = fs_exists(log);
    bool over = status == APP_OK && f->headless;
    if (!was_there && ((over && !f->keep) || !started)) {
        (void)fs_remove_tree(work, NULL);
    }
    free(dir);
    free(work);
    free(log);
    free(name);
    return status;
}

/* A log that comes with the program, replayed from its end as any other. */
static int incident(int argc)
{
    Fault fault = {0};
    ConsoleFlags flags = {.theme = NULL};
    char *log = NULL;
    bool stop = false;
    Err err = argc == 2 ? example_unpack(&log, &fault)
                        : fault_set(&fault, ERR_ARG, "rolltop demo --incident",
                                    "--incident starts no run and takes no other flag");
    if (err == ERR_OK) {
        TuiOptions options = {.log_path = log, .replay = true};
        err = console_open(&options, &flags, &stop, &fault);
    }
    free(log);
    return err ? app_fail(&fault, APP_USAGE) : APP_OK;
}

enum { DEMO_SPECS = 11 };

static void demo_specs(DemoFlags *f, FlagSpec specs[DEMO_SPECS])
{
    *f = (DemoFlags){.seed = 1, .engines = 3};
    const FlagSpec table[DEMO_SPECS] = {
        {"seed", FLAG_INT, &f->seed, 0, 1e9, "S", "of base model, prompts and sampling (1)", NULL},
        {"engines", FLAG_INT, &f->engines, 1, 64, "N", "local engines (3)", NULL},
        {"steps", FLAG_INT, &f->steps, 1, 1e6, "N", "at most (default: the task's bound)", NULL},
        {"log", FLAG_STRING, &f->log, 0, 0, "FILE", "default: under the state directory", NULL},
        {"run-id", FLAG_STRING, &f->run_id, 0, 0, "ID", "identifier of the run", NULL},
        {"headless", FLAG_SWITCH, &f->headless, 0, 0, NULL, "one plain line per step", NULL},
        {"keep", FLAG_SWITCH, &f->keep, 0, 0, NULL, "keep checkpoints after a good end", NULL},
        {"update-weight-mode", FLAG_STRING, &f->mode, 0, 0, "MODE", "full, or delta (full)", NULL},
        {"engine-faults", FLAG_SWITCH, &f->engine_faults, 0, 0, NULL,
         "engines open their fault route", NULL},
        {"incident", FLAG_SWITCH, &f->incident, 0, 0, NULL,
         "no run: the console on the recorded incident", NULL},
        {"help", FLAG_SWITCH, &f->help, 0, 0, NULL, "this list", NULL}};
    memcpy(specs, table, sizeof table);
}

void cmd_demo_flags(FlagVisit *visit, void *to)
{
    DemoFlags f;
    FlagSpec specs[DEMO_SPECS];
    demo_specs(&f, specs);
    visit(specs, DEMO_SPECS, to);
}

int cmd_demo(int argc, char **argv)
{
    static const FlagCommand command = {"usage: rolltop demo [FLAGS]\n", 0, 0, NULL,
                                        "demo takes flags only"};
    DemoFlags f;
    FlagSpec specs[DEMO_SPECS];
    demo_specs(&f, specs);
    FlagRest rest;
    int status;
    if (!app_parse(&command, specs, DEMO_SPECS, argc, argv, &rest, &status)) {
        return status;
    }
    if (f.incident) {
        status = incident(argc);
    } else {
        /* Without a terminal the run is headless anyway; the demo's tidying depends on it. */
        f.headless = f.headless || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO);
        status = demo(&f);
    }
    flags_free(specs, DEMO_SPECS, &rest);
    return status;
}
