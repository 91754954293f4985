/* Rows as an aligned table for people. The widths come from the first rows; later rows that are
 * wider push their line out rather than wait. Text is cleaned of control characters. */
#ifndef ROLLTOP_STORE_TABLE_H
#define ROLLTOP_STORE_TABLE_H

#include "core/base/str.h"

#include <stdio.h>

typedef struct Table Table;

/* Names are copied. */
Table *table_new(const char *const *names, size_t columns, FILE *out);
void table_free(Table *table);
/* One cell, left to right; `right` aligns it to the right (numbers). */
void table_cell(Table *table, Str text, bool right);
void table_row_end(Table *table);
/* Prints what waits; false when the stream failed at any time. */
bool table_end(Table *table);

#endif
