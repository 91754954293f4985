/* The enumerations of store.h as lists of words: what the log's `enumeration` table holds. */
#ifndef ROLLTOP_STORE_NAMES_H
#define ROLLTOP_STORE_NAMES_H

#include <stddef.h>

typedef struct NameList {
    const char *kind;         /* "engine_state" */
    const char *const *words; /* index = stored code */
    size_t count;
} NameList;

const NameList *names_all(size_t *count);

#endif
