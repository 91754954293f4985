/* Reading tests/data/golden-qwen3 (see its README). */
#ifndef ROLLTOP_TESTS_GOLDEN_H
#define ROLLTOP_TESTS_GOLDEN_H

#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "tests/harness.h"

#include <stdlib.h>

static const char *const golden_models[] = {"tied", "untied"};

static inline char *golden_path(const char *model, const char *file)
{
    return xasprintf("%s/golden-qwen3/%s%s%s", ROLLTOP_TEST_DATA, model, file[0] ? "/" : "", file);
}

static inline cJSON *golden_json(const char *model, const char *file)
{
    char *path = golden_path(model, file);
    Text text;
    text_init(&text, 16 << 20);
    Fault fault = {0};
    cJSON *out = NULL;
    if (fs_read(path, &text, &fault) != ERR_OK ||
        json_parse(text_str(&text), 16 << 20, path, &out, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    text_free(&text);
    free(path);
    return out;
}

static inline int32_t *golden_ids(const cJSON *array, int *count)
{
    *count = cJSON_GetArraySize(array);
    int32_t *out = xcalloc((size_t)*count + 1, sizeof(*out));
    int i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array)
    {
        out[i++] = (int32_t)item->valuedouble;
    }
    return out;
}

static inline double *golden_numbers(const cJSON *array, int *count)
{
    *count = cJSON_GetArraySize(array);
    double *out = xcalloc((size_t)*count + 1, sizeof(*out));
    int i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array)
    {
        out[i++] = item->valuedouble;
    }
    return out;
}

/* A fresh directory under /tmp for one test; remove with fs_remove_tree. */
static inline char *golden_temp(void)
{
    char *dir = xstrdup("/tmp/rolltop-test-XXXXXX");
    if (mkdtemp(dir) == NULL) {
        perror("mkdtemp");
        exit(1);
    }
    return dir;
}

#endif
