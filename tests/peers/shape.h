/* The shape of a reply: status and the set of "path:type" of its JSON, values left out. For a
 * stream the shapes of all its events together. Two servers conform where their shapes agree. */
#ifndef ROLLTOP_TESTS_PEERS_SHAPE_H
#define ROLLTOP_TESTS_PEERS_SHAPE_H

#include "core/base/json.h"
#include "core/base/str.h"

#include <stdlib.h>
#include <string.h>

enum { SHAPE_PARTS = 1024, SHAPE_PART = 112, SHAPE_DEPTH = 8 };

typedef struct Shape {
    int status, count;
    char parts[SHAPE_PARTS][SHAPE_PART]; /* sorted, no part twice */
} Shape;

static inline int shape_order(const void *a, const void *b)
{
    return strcmp(a, b);
}

static inline bool shape_has(const Shape *shape, const char *part)
{
    return bsearch(part, shape->parts, (size_t)shape->count, SHAPE_PART, shape_order) != NULL;
}

static inline void shape_add(Shape *shape, const char *part)
{
    for (int i = 0; i < shape->count; i++) {
        if (strncmp(shape->parts[i], part, SHAPE_PART - 1) == 0) {
            return;
        }
    }
    if (shape->count < SHAPE_PARTS) {
        (void)str_format(shape->parts[shape->count++], SHAPE_PART, "%s", part); /* cut is fine */
    }
}

static inline const char *shape_type(const cJSON *value)
{
    return cJSON_IsObject(value)   ? "object"
           : cJSON_IsArray(value)  ? "array"
           : cJSON_IsString(value) ? "string"
           : cJSON_IsNumber(value) ? "number"
           : cJSON_IsBool(value)   ? "bool"
                                   : "null";
}

static inline void shape_walk(Shape *shape, const cJSON *value, const char *path, int depth)
{
    char text[SHAPE_PART + 96];
    const cJSON *child = NULL;
    (void)str_format(text, sizeof text, "%s:%s", path[0] ? path : ".", shape_type(value));
    shape_add(shape, text);
    if (depth == SHAPE_DEPTH || (!cJSON_IsObject(value) && !cJSON_IsArray(value))) {
        return;
    }
    cJSON_ArrayForEach(child, value) {
        if (cJSON_IsArray(value)) {
            (void)str_format(text, sizeof text, "%s[]", path);
        } else {
            (void)str_format(text, sizeof text, "%s%s%s", path, path[0] ? "." : "", child->string);
        }
        shape_walk(shape, child, text, depth + 1);
    }
}

static inline void shape_json(Shape *shape, Str body)
{
    cJSON *tree = NULL;
    body = str_trim(body);
    if (body.n == 0) {
        shape_add(shape, "empty");
    } else if (json_parse(body, 64 << 20, "reply", &tree, NULL) == ERR_OK) {
        shape_walk(shape, tree, "", 0);
    } else {
        shape_add(shape, "text");
    }
    cJSON_Delete(tree);
}

static inline void shape_stream(Shape *shape, Str body)
{
    Str line;
    while (str_split(&body, '\n', &line)) {
        line = str_trim(line);
        if (str_equal(line, STR("data: [DONE]"))) {
            shape_add(shape, "[DONE]");
        } else if (str_starts(line, STR("data: "))) {
            shape_json(shape, str_slice(line, 6, line.n));
        }
    }
}

/* Prometheus text: the families whose names begin with `prefix`. */
static inline void shape_metrics(Shape *shape, Str body, const char *prefix)
{
    Str line;
    while (str_split(&body, '\n', &line)) {
        if (str_starts(line, str_from(prefix))) {
            size_t n = 0;
            char name[SHAPE_PART];
            while (n < line.n && n < SHAPE_PART - 1 && line.p[n] != '{' && line.p[n] != ' ') {
                name[n] = line.p[n];
                n++;
            }
            name[n] = '\0';
            shape_add(shape, name);
        }
    }
}

static inline void shape_sort(Shape *shape)
{
    qsort(shape->parts, (size_t)shape->count, SHAPE_PART, shape_order);
}

#endif
