/* Repeated strings of hot tables (probe outcomes, metric and child names) as small numbers. */
#ifndef ROLLTOP_STORE_WORDS_H
#define ROLLTOP_STORE_WORDS_H

#include "store/db.h"

/* "(other)" stands for every word after the table is full. */
enum { WORD_OTHER = 0, WORD_OK = 1, WORDS_MAX = 65536 };

typedef struct Words {
    char **text;     /* by hash */
    int64_t *id;
    size_t capacity; /* power of two */
    size_t count;
    const char *last; /* what was asked before, and its answer */
    int64_t last_id;
} Words;

void words_free(Words *words);
Err words_load(Words *words, Db *db, Fault *fault);
/* Number of the word, written when it is new. < 0: SQLite failed. */
int64_t words_id(Words *words, Db *db, const char *text);

#endif
