/* Golden screens: each is a text block and a role block of the same shape, in tests/tui/golden.
 * UPDATE=1 in the environment rewrites them:
 *   UPDATE=1 build/.../tests/tui_screen_test
 * A golden file changes only in a commit that says why. */
#ifndef ROLLTOP_TESTS_TUI_GOLDEN_H
#define ROLLTOP_TESTS_TUI_GOLDEN_H

#include "core/base/fs.h"
#include "tests/harness.h"
#include "tui/surface.h"

#include <stdlib.h>

static inline void golden_compare(const char *name, const Surface *surface)
{
    Text now;
    Text then;
    Fault fault = {0};
    char file[160];
    text_init(&now, 1 << 20);
    text_init(&then, 1 << 20);
    surface_dump_text(surface, &now);
    (void)text_add_c(&now, "---- roles ----\n");
    surface_dump_roles(surface, &now);
    (void)snprintf(file, sizeof file, "%s/tests/tui/golden/%s.txt", ROLLTOP_SOURCE, name);
    const char *update = getenv("UPDATE");
    if (update && update[0] == '1') {
        CHECK(fs_write_atomic(file, now.p, now.n, &fault) == ERR_OK);
    } else {
        CHECK(fs_read(file, &then, &fault) == ERR_OK);
        if (strcmp(text_c(&now), text_c(&then)) != 0) {
            printf("%s differs; this is the screen now:\n%s", name, text_c(&now));
        }
        CHECK(strcmp(text_c(&now), text_c(&then)) == 0);
    }
    text_free(&now);
    text_free(&then);
}

#endif
