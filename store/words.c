#include "store/words.h"

#include "core/base/hash.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

void words_free(Words *words)
{
    for (size_t i = 0; i < words->capacity; i++) {
        free(words->text[i]);
    }
    free(words->text);
    free(words->id);
    *words = (Words){0};
}

static size_t place_of(const Words *words, const char *text)
{
    size_t at = (size_t)hash64(text, strlen(text), 0) & (words->capacity - 1);
    while (words->text[at] != NULL && strcmp(words->text[at], text) != 0) {
        at = (at + 1) & (words->capacity - 1);
    }
    return at;
}

static void words_add(Words *words, char *text, int64_t id)
{
    if ((words->count + 1) * 2 > words->capacity) {
        Words old = *words;
        words->capacity = old.capacity == 0 ? 64 : old.capacity * 2;
        words->text = xcalloc(words->capacity, sizeof *words->text);
        words->id = xcalloc(words->capacity, sizeof *words->id);
        for (size_t i = 0; i < old.capacity; i++) {
            if (old.text[i] != NULL) {
                size_t at = place_of(words, old.text[i]);
                words->text[at] = old.text[i];
                words->id[at] = old.id[i];
            }
        }
        free(old.text);
        free(old.id);
    }
    size_t at = place_of(words, text);
    if (words->text[at] != NULL) { /* a damaged file may hold one twice: the first counts */
        free(text);
        return;
    }
    words->text[at] = text;
    words->id[at] = id;
    words->count++;
}

Err words_load(Words *words, Db *db, Fault *fault)
{
    words_free(words);
    sqlite3_stmt *stmt = db_stmt(db, "SELECT word_id, text FROM word ORDER BY word_id", fault);
    if (stmt == NULL) {
        return db_err(sqlite3_errcode(db->handle));
    }
    int rc = sqlite3_step(stmt);
    for (; rc == SQLITE_ROW; rc = sqlite3_step(stmt)) {
        const char *text = (const char *)sqlite3_column_text(stmt, 1);
        words_add(words, xstrdup(text != NULL ? text : ""), sqlite3_column_int64(stmt, 0));
    }
    Err err = rc == SQLITE_DONE ? ERR_OK : db_fault(db, fault, "cannot read the log");
    sqlite3_reset(stmt);
    return err;
}

int64_t words_id(Words *words, Db *db, const char *text)
{
    if (text == NULL) {
        return WORD_OTHER;
    }
    if (words->last != NULL && strcmp(words->last, text) == 0) {
        return words->last_id; /* nearly every probe is "ok" */
    }
    if (words->capacity > 0) {
        size_t at = place_of(words, text);
        if (words->text[at] != NULL) {
            words->last = words->text[at];
            words->last_id = words->id[at];
            return words->id[at];
        }
    }
    if (words->count >= WORDS_MAX) {
        return WORD_OTHER;
    }
    Bind bind = {db_stmt(db, "INSERT INTO word (text) VALUES (?)", NULL), 0};
    if (bind.stmt == NULL) {
        return -1;
    }
    bind_text(&bind, text);
    if (bind_run(&bind) != SQLITE_OK) {
        return -1;
    }
    int64_t id = sqlite3_last_insert_rowid(db->handle);
    words_add(words, xstrdup(text), id);
    return id;
}
