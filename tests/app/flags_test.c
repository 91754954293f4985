/* Every flag of every subcommand says what it is; the manual names every subcommand. */
#include "core/app/app.h"
#include "core/base/fs.h"
#include "tests/harness.h"

#include <ctype.h>
#include <string.h>

typedef struct Seen {
    const char *sub;
    size_t flags;
    bool help;
} Seen;

/* Words outside parentheses: "(0.2)" says a default and nothing else. */
static size_t letters_of(const char *help)
{
    size_t letters = 0;
    int depth = 0;
    for (const char *p = help ? help : ""; *p; p++) {
        depth += *p == '(' ? 1 : *p == ')' ? -1 : 0;
        letters += depth == 0 && isalpha((unsigned char)*p) ? 1 : 0;
    }
    return letters;
}

static void check_table(const FlagSpec *specs, size_t count, void *to)
{
    Seen *seen = to;
    for (size_t i = 0; i < count; i++) {
        const FlagSpec *spec = &specs[i];
        if (letters_of(spec->help) < 4) {
            fprintf(stderr, "rolltop %s --%s: no help\n", seen->sub, spec->name);
        }
        CHECK(letters_of(spec->help) >= 4);
        CHECK(strchr(spec->help, '\n') == NULL);
        CHECK((spec->type == FLAG_SWITCH) == (spec->value_name == NULL));
        CHECK(spec->target != NULL);
        for (size_t j = 0; j < i; j++) {
            CHECK(strcmp(specs[j].name, spec->name) != 0);
        }
        seen->help = seen->help || strcmp(spec->name, "help") == 0;
        seen->flags++;
    }
}

int main(void)
{
    size_t count = 0;
    const Subcommand *subs = app_subcommands(&count);
    CHECK(count >= 11);
    Text text;
    text_init(&text, 1 << 20);
    Fault fault = {0};
    CHECK(fs_read(ROLLTOP_SOURCE "/docs/rolltop.1", &text, &fault) == ERR_OK);
    for (size_t i = 0; i < count; i++) {
        Seen seen = {.sub = subs[i].name};
        CHECK(letters_of(subs[i].help) >= 4);
        subs[i].flags(check_table, &seen);
        CHECK(seen.flags > 0);
        CHECK(seen.help);
        char entry[64];
        CHECK(str_format(entry, sizeof entry, ".TP\n.B %s\n", subs[i].name));
        if (!strstr(text_c(&text), entry)) {
            fprintf(stderr, "docs/rolltop.1 does not describe %s\n", subs[i].name);
        }
        CHECK(strstr(text_c(&text), entry) != NULL);
    }
    text_free(&text);
    return test_end();
}
