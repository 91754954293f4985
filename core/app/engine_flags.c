#include "core/app/engine_flags.h"

#include "core/base/fs.h"
#include "core/base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { COMMAND_WORDS_MAX = 64, FLAG_NAMES_MAX = 16384, KEY_MAX = 4096 };

void engine_flags_init(EngineFlags *flags)
{
    *flags = (EngineFlags){0};
    text_init(&flags->names, FLAG_NAMES_MAX);
}

void engine_flags_free(EngineFlags *flags)
{
    for (int i = 0; i < flags->word_count; i++) {
        free(flags->words[i]);
    }
    for (int i = 0; i < flags->setting_count; i++) {
        free((char *)(uintptr_t)flags->settings[i].name);
        free((char *)(uintptr_t)flags->settings[i].value);
    }
    free(flags->words);
    free(flags->settings);
    text_free(&flags->names);
    *flags = (EngineFlags){0};
}

static void add_word(EngineFlags *flags, char *word)
{
    if (flags->word_count + 2 > flags->word_room) {
        flags->word_room = flags->word_room ? 2 * flags->word_room : 16;
        flags->words = xrealloc(flags->words, (size_t)flags->word_room, sizeof *flags->words);
    }
    flags->words[flags->word_count++] = word;
    flags->words[flags->word_count] = NULL;
}

static Err check_name(Str plain, Fault *fault)
{
    static const char *const ours[] = {"host", "port", "model-path", "model"};
    static const char *const keys[] = {"api-key", "admin-api-key"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        if (str_equal(plain, str_from(ours[i]))) {
            return fault_set(fault, ERR_ARG, "leave it out; the checkpoint is --hf-checkpoint",
                             "--sglang-%s is set by the run itself", ours[i]);
        }
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (str_equal(plain, str_from(keys[i]))) {
            return fault_set(fault, ERR_ARG,
                             i ? "export SGLANG_ADMIN_API_KEY, or name a file of mode 0600 in "
                                 "SGLANG_ADMIN_API_KEY_FILE"
                               : "export SGLANG_API_KEY, or name a file of mode 0600 in "
                                 "SGLANG_API_KEY_FILE",
                             "--sglang-%s would show the key in every list of processes", keys[i]);
        }
    }
    return ERR_OK;
}

Err engine_flags_take(EngineFlags *flags, Str name, const char *joined, char **values, int count,
                      Fault *fault)
{
    Str plain = str_slice(name, STR("sglang-").n, name.n);
    Err err = check_name(plain, fault);
    if (err != ERR_OK) {
        return err;
    }
    char *setting = xstrndup(plain.p, plain.n);
    for (char *c = setting; *c; c++) {
        *c = *c == '-' ? '_' : *c;
    }
    Text value;
    text_init(&value, FLAG_NAMES_MAX);
    add_word(flags, xasprintf("--%.*s", (int)plain.n, plain.p));
    if (joined) {
        add_word(flags, xstrdup(joined));
        text_add_c(&value, joined);
    }
    for (int i = 0; i < count; i++) {
        add_word(flags, xstrdup(values[i]));
        text_addf(&value, "%s%s", value.n ? " " : "", values[i]);
    }
    if (!joined && count == 0) {
        text_add_c(&value, "true");
    }
    flags->settings = xrealloc(flags->settings, (size_t)flags->setting_count + 1,
                               sizeof *flags->settings);
    flags->settings[flags->setting_count++] =
        (EngineSetting){.name = setting, .value = xstrdup(text_c(&value))};
    text_addf(&flags->names, "%s--%.*s", flags->names.n ? ", " : "", (int)name.n, name.p);
    text_free(&value);
    return ERR_OK;
}

/* ---- the command -------------------------------------------------------------------------- */

Err engine_command_make(const char *command, const char *checkpoint, const EngineFlags *flags,
                        char ***out, Fault *fault)
{
    const char *text = strcmp(command, "sglang") == 0 ? "python3 -m sglang.launch_server"
                                                      : command;
    char **words = xcalloc(COMMAND_WORDS_MAX + (size_t)flags->word_count + 4, sizeof *words);
    int n = 0;
    Str rest = str_from(text);
    Str word;
    while (str_split(&rest, ' ', &word)) {
        if (word.n > 0 && n == COMMAND_WORDS_MAX) {
            engine_command_free(words);
            return fault_set(fault, ERR_LIMIT, "put it into a script",
                             "--engine-cmd has more than %d words", COMMAND_WORDS_MAX);
        }
        if (word.n > 0) {
            words[n++] = xstrndup(word.p, word.n);
        }
    }
    if (n == 0) {
        engine_command_free(words);
        return fault_set(fault, ERR_ARG, "write --engine-cmd sglang, or a command",
                         "--engine-cmd is empty");
    }
    words[n++] = xstrdup("--model-path");
    words[n++] = xstrdup(checkpoint);
    for (int i = 0; i < flags->word_count; i++) {
        words[n++] = xstrdup(flags->words[i]);
    }
    *out = words;
    return ERR_OK;
}

void engine_command_free(char **command)
{
    for (int i = 0; command && command[i]; i++) {
        free(command[i]);
    }
    free(command);
}

/* ---- keys --------------------------------------------------------------------------------- */

static Err read_key_file(const char *variable, const char *path, char **out, Fault *fault)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return fault_set_sys(fault, ERR_NOT_FOUND, errno, NULL, "%s names %s", variable, path);
    }
    if ((info.st_mode & 077) != 0) {
        return fault_set(fault, ERR_ARG, "chmod 600 it",
                         "%s: the key file %s can be read by others", variable, path);
    }
    Text text;
    text_init(&text, KEY_MAX);
    Err err = fs_read(path, &text, fault);
    Str key = str_trim(text_str(&text));
    if (err == ERR_OK && (key.n == 0 || memchr(key.p, '\n', key.n))) {
        err = fault_set(fault, ERR_FORMAT, "one line with the key", "%s: %s holds no key",
                        variable, path);
    } else if (err == ERR_OK) {
        *out = xstrndup(key.p, key.n);
    }
    text_free(&text);
    return err;
}

Err engine_key_read(const char *variable, char **out, Fault *fault)
{
    const char *value = getenv(variable);
    char file[64];
    (void)str_format(file, sizeof file, "%s_FILE", variable);
    const char *path = getenv(file);
    *out = NULL;
    if (value && value[0]) {
        *out = xstrdup(value);
        return ERR_OK;
    }
    return path && path[0] ? read_key_file(file, path, out, fault) : ERR_OK;
}
