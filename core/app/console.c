#include "core/app/console.h"

#include "core/app/app.h"
#include "core/base/fs.h"
#include "core/base/mem.h"

#include <langinfo.h>
#include <locale.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Installed: PREFIX/share/rolltop/themes beside PREFIX/bin; in a build tree: SOURCE/themes, two
 * folders above build/NAME/rolltop. */
static char *find_themes(void)
{
    const char *env = getenv("ROLLTOP_THEMES");
    if (env && env[0]) {
        return xstrdup(env);
    }
    char *program = app_program();
    char *slash = strrchr(program, '/');
    if (slash) {
        *slash = '\0';
    }
    static const char *const places[] = {"../share/rolltop/themes", "../../themes", "themes"};
    char *found = NULL;
    for (size_t i = 0; slash && i < sizeof places / sizeof *places && !found; i++) {
        char *path = fs_join(program, places[i]);
        if (fs_is_dir(path)) {
            found = path;
        } else {
            free(path);
        }
    }
    free(program);
    return found;
}

void console_defaults(TuiOptions *options)
{
    (void)setlocale(LC_CTYPE, "");
    struct passwd *entry = getpwuid(geteuid());
    options->user = xstrdup(entry ? entry->pw_name : "operator");
    options->theme_dir = find_themes();
    options->ascii = options->ascii || strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
}

bool console_possible(void)
{
    const char *term = getenv("TERM");
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) && term && term[0] &&
           strcmp(term, "dumb") != 0;
}

void console_free(TuiOptions *options)
{
    free((void *)(uintptr_t)options->user);
    free((void *)(uintptr_t)options->theme_dir);
}
