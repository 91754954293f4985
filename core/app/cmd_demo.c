/* `rolltop demo`: makes a base checkpoint and prompts, then is exactly a `run` with these
 * settings. */
#include "core/app/app.h"
#include "core/app/console.h"
#include "core/app/demo_flags.h"
#include "core/app/example.h"
#include "core/app/run_main.h"
#include "core/app/run_plan.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/train/demo_task.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WORD_MAX = 32 };

typedef struct Words { /* the command line of the run that the demo is; NULL-terminated */
    char **argv;
    int argc;
} Words;

static void add(const char *word, void *to)
{
    Words *words = to;
    words->argv = xrealloc(words->argv, (size_t)words->argc + 2, sizeof *words->argv);
    words->argv[words->argc++] = xstrdup(word);
    words->argv[words->argc] = NULL;
}

static void add_pair(Words *words, const char *flag, const char *value)
{
    add(flag, words);
    add(value, words);
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
        add(flag, words);
    }
    add(path, words);
    free(path);
}

static void words_free(Words *words)
{
    for (int i = 0; i < words->argc; i++) {
        free(words->argv[i]);
    }
    free(words->argv);
}

/* What the demo chooses where nothing else is given. */
static void write_choices(Words *w, const DemoFlags *f, const DemoTask *task)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"eval-interval", task->eval_interval},
                   {"stop-at-eval-reward", task->reached},
                   {"rollout-batch-size", task->rollout_batch_size},
                   {"n-samples-per-prompt", task->n_samples_per_prompt},
                   {"rollout-max-response-len", task->max_response_len},
                   {"lr", task->lr},
                   {"weight-decay", 0.0},
                   {"rollout-seed", (double)f->seed},
                   {"sglang-server-concurrency", 64}};
    const struct {
        const char *name;
        bool on;
    } switches[] = {{"disable-grpo-std-normalization", !task->std_normalization},
                    {"rollout-shuffle", true},
                    /* the answer is the text before the end token */
                    {"rollout-skip-special-tokens", true}};
    char flag[64];
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        (void)str_format(flag, sizeof flag, "--%s", numbers[i].name);
        if (!demo_flags_given(f, numbers[i].name)) {
            add_number(w, flag, numbers[i].value);
        }
    }
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        (void)str_format(flag, sizeof flag, "--%s", switches[i].name);
        if (switches[i].on && !demo_flags_given(f, switches[i].name)) {
            add(flag, w);
        }
    }
    /* One optimizer step a rollout, unless the sizes are another's choice. */
    if (!demo_flags_given(f, "global-batch-size") && !demo_flags_given(f, "rollout-batch-size") &&
        !demo_flags_given(f, "n-samples-per-prompt") &&
        !demo_flags_given(f, "num-steps-per-rollout")) {
        add_number(w, "--global-batch-size", task->global_batch_size);
    }
    if (!demo_flags_given(f, "publish-dtype")) {
        add_pair(w, "--publish-dtype", "f32");
    }
    if (!demo_flags_given(f, "name")) {
        add_pair(w, "--name", "demo");
    }
}

static void write_words(Words *w, const DemoFlags *f, const char *run_id, const DemoTask *task,
                        const char *log, const char *dir)
{
    add("run", w);
    add_pair(w, "--log", log);
    add_pair(w, "--run-id", run_id);
    if (f->headless) {
        add("--headless", w);
    }
    add_path(w, "--hf-checkpoint", dir, "base");
    add_path(w, "--prompt-data", dir, "train.jsonl");
    add_pair(w, "--input-key", task->input_key);
    add_pair(w, "--label-key", task->label_key);
    add_pair(w, "--rm-type", task->rm_type);
    add_pair(w, "--eval-rm-type", task->eval_rm_type);
    add_pair(w, "--eval-prompt-data", "held-out");
    add_path(w, NULL, dir, "eval.jsonl");
    add_number(w, "--num-rollout", f->steps > 0 ? (double)f->steps : task->max_steps);
    add_number(w, "--seed", (double)f->seed);
    add_number(w, "--local-engines", (double)f->engines);
    write_choices(w, f, task);
    demo_flags_words(f, add, w);
}

/* Of run and log, where the flags name none: taken once, for a second may pass between uses. */
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

static Err write_task(const DemoFlags *f, const char *log, const char *dir, Fault *fault)
{
    Err err = run_plan_log_place(log, false, fault);
    err = err ? err : fs_mkdirs(dir, 0755, fault);
    return err ? err : demo_task_write(dir, (uint64_t)f->seed, fault);
}

typedef struct WarmUp { /* of the base model, when nothing is left that could be refused */
    const char *dir;
    uint64_t seed;
} WarmUp;

static Err warm_up(void *user, Fault *fault)
{
    const WarmUp *warm = user;
    int64_t start = clock_mono_us();
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    Err err = demo_task_warm_up(warm->dir, warm->seed, cores > 0 ? (int)cores : 1, fault);
    if (err == ERR_OK) {
        printf("base model and prompts made in %.1f s\n", (double)(clock_mono_us() - start) / 1e6);
        fflush(stdout);
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
    if (write_task(f, log, dir, &fault) != ERR_OK) {
        status = app_fail(&fault, APP_USAGE);
    } else {
        WarmUp warm = {dir, (uint64_t)f->seed};
        RunPrepare prepare = {warm_up, &warm};
        Words words = {0};
        write_words(&words, f, f->run_id ? f->run_id : name, &task, log, dir);
        status = run_main(words.argc, words.argv, "demo", &prepare);
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

int cmd_demo(int argc, char **argv)
{
    DemoFlags f;
    Fault fault = {0};
    int status = APP_OK;
    if (demo_flags_parse(&f, argc, argv, &fault) != ERR_OK) {
        status = app_fail(&fault, APP_USAGE);
    } else if (f.help) {
        demo_flags_help(stdout);
    } else if (f.incident) {
        status = incident(argc);
    } else {
        /* Without a terminal the run is headless anyway; the demo's tidying depends on it. */
        f.headless = f.headless || !isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO);
        status = demo(&f);
    }
    demo_flags_free(&f);
    return status;
}
