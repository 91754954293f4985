/* docs/log.md against a log: every table, topic and column it names is there, in that order, and
 * nothing is left out. */
#include "store/names.h"
#include "store/query.h"
#include "store/topics.h"
#include "tests/harness.h"
#include "tests/store/scene.h"

#include "core/base/fs.h"

#include <sqlite3.h>

static char *dir, *path;
static Text page;

/* "`name`" at the start of a table row's first cell, or after "### ". */
static bool quoted(Str line, Str before, Str *name)
{
    if (!str_starts(line, before)) {
        return false;
    }
    Str rest = str_slice(line, before.n, line.n);
    return str_split(&rest, '`', name);
}

/* Columns documented under the heading of `name` in the part that starts with `part`. */
static void documented(const char *part, const char *name, Text *out)
{
    size_t at = 0;
    CHECK(str_find(text_str(&page), str_from(part), &at));
    Str rest = str_slice(text_str(&page), at + strlen(part), page.n);
    Str line;
    bool inside = false;
    while (str_split(&rest, '\n', &line)) {
        Str found;
        if (str_starts(line, STR("## "))) {
            break;
        }
        if (quoted(line, STR("### `"), &found)) {
            inside = str_equal(found, str_from(name));
        } else if (inside && quoted(line, STR("| `"), &found)) {
            text_addf(out, "%.*s ", (int)found.n, found.p);
        }
    }
}

static void compare(const char *part, const char *name, const char *real)
{
    Text docs;
    text_init(&docs, 1 << 16);
    documented(part, name, &docs);
    CHECK_STR(text_c(&docs), real);
    text_free(&docs);
}

static int count_headings(const char *part)
{
    size_t at = 0;
    CHECK(str_find(text_str(&page), str_from(part), &at));
    Str rest = str_slice(text_str(&page), at + strlen(part), page.n);
    Str line;
    int count = 0;
    while (str_split(&rest, '\n', &line) && !str_starts(line, STR("## "))) {
        count += str_starts(line, STR("### `"));
    }
    return count;
}

static char *text_of(sqlite3 *db, const char *sql, const char *argument)
{
    sqlite3_stmt *stmt = NULL;
    Text text;
    text_init(&text, 1 << 16);
    CHECK_I64(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    if (argument != NULL) {
        sqlite3_bind_text(stmt, 1, argument, -1, SQLITE_STATIC);
    }
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        text_addf(&text, "%s ", (const char *)sqlite3_column_text(stmt, 0));
    }
    sqlite3_finalize(stmt);
    char *out = text_take(&text);
    return out != NULL ? out : xstrdup("");
}

static void test_tables(void)
{
    sqlite3 *db = NULL;
    CHECK_I64(sqlite3_open(path, &db), SQLITE_OK);
    char *tables = text_of(db, "SELECT name FROM sqlite_master WHERE type = 'table'", NULL);
    Str rest = str_trim(str_from(tables));
    Str table;
    int count = 0;
    while (str_split(&rest, ' ', &table)) {
        char *name = xstrndup(table.p, table.n);
        char *columns = text_of(db, "SELECT name FROM pragma_table_info(?)", name);
        compare("## Tables\n", name, columns);
        free(columns);
        free(name);
        count++;
    }
    CHECK_I64(count_headings("## Tables\n"), count);
    free(tables);
    sqlite3_close(db);
}

static void test_topics(void)
{
    size_t count = 0;
    const Topic *topics = topics_all(&count);
    CHECK_I64(count_headings("## Topics\n"), count);
    for (size_t i = 0; i < count; i++) {
        /* An aggregate that has no rows prints the header alone: the names of the columns. */
        char *text = NULL;
        size_t n = 0;
        FILE *out = open_memstream(&text, &n);
        char *sql = xasprintf("select * from %s limit 0", topics[i].name);
        CHECK_I64(query_sql(path, sql, false, out, NULL), ERR_OK);
        fclose(out);
        Text real;
        text_init(&real, 1 << 16);
        Str line = str_trim(str_from(text));
        Str name;
        while (str_split(&line, ' ', &name)) {
            if (name.n > 0) {
                text_addf(&real, "%.*s ", (int)name.n, name.p);
            }
        }
        compare("## Topics\n", topics[i].name, text_c(&real));
        text_free(&real);
        free(sql);
        free(text);
    }
}

static void test_enumerations(void)
{
    size_t count = 0;
    const NameList *lists = names_all(&count);
    for (size_t i = 0; i < count; i++) {
        Text row;
        text_init(&row, 1 << 12);
        text_addf(&row, "| `%s` |", lists[i].kind);
        for (size_t code = 0; code < lists[i].count; code++) {
            text_addf(&row, " %s", lists[i].words[code]);
        }
        text_add_c(&row, " |\n");
        size_t at = 0;
        CHECK(str_find(text_str(&page), text_str(&row), &at));
        if (!str_find(text_str(&page), text_str(&row), &at)) {
            fprintf(stderr, "  docs/log.md lacks: %s", text_c(&row));
        }
        text_free(&row);
    }
}

int main(void)
{
    dir = scene_dir();
    path = xasprintf("%s/run.db", dir);
    text_init(&page, 1 << 20);
    Fault fault = {0};
    Store *store = NULL;
    CHECK_I64(fs_read(ROLLTOP_SOURCE "/docs/log.md", &page, &fault), ERR_OK);
    CHECK_I64(store_open(path, NULL, &store, &fault), ERR_OK);
    store_close(store);
    RUN(test_tables);
    RUN(test_topics);
    RUN(test_enumerations);
    text_free(&page);
    free(path);
    scene_remove(dir);
    return test_end();
}
