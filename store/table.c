#include "store/table.h"

#include "core/base/mem.h"
#include "core/base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { MEASURED_ROWS = 500, CELL_COLUMNS = 60, CELL_BYTES = 1 << 16 };

typedef struct Cell {
    char *text;
    size_t columns;
    bool right;
} Cell;

struct Table {
    FILE *out;
    size_t columns, at; /* `at`: next cell of the row */
    size_t *widths;
    Cell *cells;        /* waiting rows */
    size_t rows;        /* that wait */
    bool streaming;     /* widths are settled */
    bool failed;
    Cell *names;
};

static Cell clean_cell(Str text, size_t max_columns, bool right)
{
    Text out;
    text_init(&out, CELL_BYTES);
    size_t columns = 0;
    size_t at = 0;
    while (at < text.n) {
        if (columns + 1 > max_columns - 1 && text.n - at > 1) {
            text_add_c(&out, "\xe2\x80\xa6"); /* an ellipsis: cut, and seen to be cut */
            columns++;
            break;
        }
        uint32_t code = 0;
        bool partial = false;
        size_t n = utf8_decode(text.p + at, text.n - at, &code, &partial);
        char bytes[4];
        size_t length = utf8_encode(utf8_harmless(code) ? code : code == '\n' ? ' ' : '?', bytes);
        if (!text_add(&out, bytes, length)) {
            break;
        }
        columns++;
        at += n > 0 ? n : 1;
    }
    char *cleaned = out.n > 0 ? text_take(&out) : xstrdup("");
    text_free(&out);
    return (Cell){cleaned, columns, right};
}

Table *table_new(const char *const *names, size_t columns, FILE *out)
{
    Table *table = xcalloc(1, sizeof *table);
    table->out = out;
    table->columns = columns;
    table->widths = xcalloc(columns, sizeof *table->widths);
    table->names = xcalloc(columns, sizeof *table->names);
    table->cells = xcalloc(columns * MEASURED_ROWS, sizeof *table->cells);
    for (size_t i = 0; i < columns; i++) {
        table->names[i] = clean_cell(str_from(names[i]), CELL_COLUMNS, false);
        table->widths[i] = table->names[i].columns;
    }
    return table;
}

static void free_cells(Cell *cells, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(cells[i].text);
        cells[i].text = NULL;
    }
}

void table_free(Table *table)
{
    if (table == NULL) {
        return;
    }
    free_cells(table->cells, table->rows * table->columns + table->at);
    free_cells(table->names, table->columns);
    free(table->cells);
    free(table->names);
    free(table->widths);
    free(table);
}

static void print_pad(Table *table, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        fputc(' ', table->out);
    }
}

static void print_row(Table *table, const Cell *cells)
{
    for (size_t i = 0; i < table->columns; i++) {
        size_t width = table->widths[i];
        size_t pad = width > cells[i].columns ? width - cells[i].columns : 0;
        if (i > 0) {
            fputs("  ", table->out);
        }
        if (cells[i].right) {
            print_pad(table, pad);
        }
        fputs(cells[i].text, table->out);
        if (!cells[i].right && i + 1 < table->columns) {
            print_pad(table, pad);
        }
    }
    table->failed = fputc('\n', table->out) == EOF || table->failed;
}

static void settle(Table *table)
{
    if (!table->streaming) {
        for (size_t i = 0; i < table->columns && table->rows > 0; i++) {
            table->names[i].right = table->cells[i].right;
        }
        print_row(table, table->names);
        for (size_t row = 0; row < table->rows; row++) {
            print_row(table, &table->cells[row * table->columns]);
        }
        free_cells(table->cells, table->rows * table->columns);
        table->rows = 0;
        table->streaming = true;
    }
}

void table_cell(Table *table, Str text, bool right)
{
    bool last = table->at + 1 == table->columns;
    Cell cell = clean_cell(text, last ? 400 : CELL_COLUMNS, right);
    if (!table->streaming && cell.columns > table->widths[table->at]) {
        table->widths[table->at] = cell.columns;
    }
    table->cells[table->rows * table->columns + table->at++] = cell;
}

void table_row_end(Table *table)
{
    table->at = 0;
    if (table->streaming) {
        print_row(table, table->cells);
        free_cells(table->cells, table->columns);
        return;
    }
    table->rows++;
    if (table->rows == MEASURED_ROWS) {
        settle(table);
    }
}

bool table_end(Table *table)
{
    settle(table);
    return !table->failed;
}
