/* Test data: JSON files of tests/data, plain or zstd, and short ways to their numbers. */
#ifndef ROLLTOP_TESTS_TRAIN_DATA_H
#define ROLLTOP_TESTS_TRAIN_DATA_H

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

static inline cJSON *data_json(const char *path)
{
    Text text;
    Fault fault = {0};
    text_init(&text, 32 << 20);
    cJSON *json = NULL;
    if (fs_read(path, &text, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    size_t n = strlen(path);
    if (n > 4 && strcmp(path + n - 4, ".zst") == 0) {
        size_t room = 32 << 20;
        char *plain = xcalloc(room, 1);
        size_t got = ZSTD_decompress(plain, room, text.p, text.n);
        if (!ZSTD_isError(got)) {
            json_parse((Str){plain, got}, room, path, &json, &fault);
        }
        free(plain);
    } else {
        json_parse(text_str(&text), text.max, path, &json, &fault);
    }
    text_free(&text);
    if (!json) {
        fprintf(stderr, "%s cannot be read as JSON\n", path);
        exit(1);
    }
    return json;
}

static inline size_t data_count(const cJSON *array)
{
    return (size_t)cJSON_GetArraySize(array);
}

static inline const cJSON *data_at(const cJSON *array, size_t i)
{
    return cJSON_GetArrayItem(array, (int)i);
}

/* Array of numbers, malloc'ed; NULL for null or absent. */
static inline double *data_doubles(const cJSON *array, size_t *count)
{
    if (!cJSON_IsArray(array)) {
        return NULL;
    }
    size_t n = data_count(array);
    double *out = xcalloc(n, sizeof *out);
    size_t i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array)
    {
        out[i++] = item->valuedouble;
    }
    if (count) {
        *count = n;
    }
    return out;
}

static inline uint8_t *data_mask(const cJSON *array)
{
    size_t n = 0;
    double *values = data_doubles(array, &n);
    uint8_t *out = xcalloc(n, 1);
    for (size_t i = 0; i < n; i++) {
        out[i] = values[i] != 0.0;
    }
    free(values);
    return out;
}

static inline float *data_floats(const cJSON *array, size_t *count)
{
    size_t n = 0;
    double *values = data_doubles(array, &n);
    float *out = xcalloc(n, sizeof *out);
    for (size_t i = 0; i < n; i++) {
        out[i] = (float)values[i];
    }
    free(values);
    if (count) {
        *count = n;
    }
    return out;
}

#endif
