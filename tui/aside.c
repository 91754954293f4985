#include "tui/aside.h"

#include "core/base/fs.h"
#include "tui/rows.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MARKS_FILE_MAX = 64 * 1024, EXPORT_MAX = 32 << 20 };

static void marks_path(const Model *model, char *out, size_t size)
{
    (void)str_format(out, size, "%s.marks", model->log_path);
}

void marks_load(Model *model)
{
    char path[300];
    Text text;
    Str line;
    marks_path(model, path, sizeof path);
    text_init(&text, MARKS_FILE_MAX);
    if (fs_exists(path) && fs_read(path, &text, NULL) == ERR_OK) {
        Str rest = text_str(&text);
        while (str_split(&rest, '\n', &line) && model->bookmark_count < MODEL_BOOKMARKS_MAX) {
            Bookmark *mark = &model->bookmarks[model->bookmark_count];
            Str name = line;
            Str number;
            bool whole = str_split(&name, ' ', &number) && str_to_i64(number, &mark->t_us);
            if (whole && name.n > 0) {
                (void)str_format(mark->name, sizeof mark->name, "%.*s",
                                 (int)(name.n < sizeof mark->name ? name.n
                                                                  : sizeof mark->name - 1),
                                 name.p);
                model->bookmark_count++;
            }
        }
    }
    text_free(&text);
}

Err marks_save(const Model *model, Fault *fault)
{
    char path[300];
    Text text;
    marks_path(model, path, sizeof path);
    text_init(&text, MARKS_FILE_MAX);
    for (int i = 0; i < model->bookmark_count; i++) {
        (void)text_addf(&text, "%lld %s\n", (long long)model->bookmarks[i].t_us,
                        model->bookmarks[i].name);
    }
    Err err = fs_write_atomic(path, text.p, text.n, fault);
    text_free(&text);
    return err;
}

/* All of `text` into a file that was just made, or no file. */
static Err fill_file(int fd, Str text, const char *path, Fault *fault)
{
    int why = fs_write_all(fd, text.p, text.n) ? 0 : errno;
    why = close(fd) != 0 && why == 0 ? errno : why;
    if (why != 0) {
        (void)unlink(path);
        return fault_set_sys(fault, ERR_IO, why, NULL, "cannot write %s", path);
    }
    return ERR_OK;
}

Err copy_to_file(Str text, char *path, size_t size, Fault *fault)
{
    const char *folder = getenv("TMPDIR");
    (void)str_format(path, size, "%s/rolltop-screen-XXXXXX",
                     folder && folder[0] ? folder : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0) {
        return fault_set_sys(fault, ERR_IO, errno, "set TMPDIR to a folder that can be written",
                             "cannot make %s", path);
    }
    return fill_file(fd, text, path, fault);
}

Err export_rows(const Model *model, const Snapshot *snap, int *rows, Fault *fault)
{
    Text text;
    const char *path = model->export_path;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return fault_set_sys(fault, errno == EEXIST ? ERR_EXISTS : ERR_IO, errno,
                             "name a file that is not there yet", "cannot make %s", path);
    }
    text_init(&text, EXPORT_MAX);
    rows_header(model->focus, &text);
    *rows = rows_chosen(model, snap, true, &text);
    Err err = fill_file(fd, text_str(&text), path, fault);
    if (err == ERR_OK && text.cut) {
        (void)unlink(path);
        err = fault_set(fault, ERR_LIMIT, "mark the rows that are wanted",
                        "the rows are more than %d MiB", EXPORT_MAX >> 20);
    }
    text_free(&text);
    return err;
}

static void set_env(const Model *model, const Snapshot *snap, int64_t now_us)
{
    char number[32];
    const EngineRow *row = model_engine(model, snap);
    int64_t sample = model_sample(model, snap);
    (void)setenv("ROLLTOP_LOG", model->log_path, 1);
    (void)setenv("ROLLTOP_ENGINE", row && row->name ? row->name : "", 1);
    (void)setenv("ROLLTOP_ADDRESS", row && row->address ? row->address : "", 1);
    (void)str_format(number, sizeof number, "%lld", (long long)sample);
    (void)setenv("ROLLTOP_SAMPLE", sample > 0 ? number : "", 1);
    (void)str_format(number, sizeof number, "%lld", (long long)model_time(model, now_us));
    (void)setenv("ROLLTOP_TIME_US", number, 1);
}

int shell_run(Term *term, const Model *model, const Snapshot *snap, int64_t now_us)
{
    const ShellCommand *command = &model->config.commands[model->shell];
    int status = -1;
    int c = 0;
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction before[2];
    term_leave(term);
    (void)sigaction(SIGINT, &ignore, &before[0]); /* ctrl-c is for the command */
    (void)sigaction(SIGQUIT, &ignore, &before[1]);
    printf("%s: %s\n", command->name, command->run);
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        (void)signal(SIGINT, SIG_DFL);
        (void)signal(SIGQUIT, SIG_DFL);
        (void)signal(SIGPIPE, SIG_DFL);
        set_env(model, snap, now_us);
        execl("/bin/sh", "sh", "-c", command->run, (char *)NULL);
        _exit(127);
    }
    if (pid > 0) {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    printf("%s ended with status %d; Enter goes back\n", command->name,
           WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    (void)fflush(stdout);
    do {
        c = getchar();
    } while (c != '\n' && c != EOF);
    clearerr(stdin);
    (void)sigaction(SIGINT, &before[0], NULL);
    (void)sigaction(SIGQUIT, &before[1], NULL);
    term_return(term);
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
