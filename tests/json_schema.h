/* JSON Schema as far as docs/snapshot.schema.json uses it: type, const, enum, minimum, required,
 * properties, additionalProperties false, items, $ref to #/$defs. A keyword that is none of these
 * fails, so that nothing in a schema is passed over in silence. */
#ifndef ROLLTOP_TESTS_JSON_SCHEMA_H
#define ROLLTOP_TESTS_JSON_SCHEMA_H

#include "core/base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct SchemaCheck {
    const cJSON *root;
    char path[256], why[512]; /* of the first thing that does not hold */
} SchemaCheck;

static inline bool schema_fails(SchemaCheck *check, const char *what, const char *word)
{
    if (!check->why[0]) {
        (void)str_format(check->why, sizeof check->why, "%s: %s %s", check->path, what, word);
    }
    return false;
}

static inline bool schema_type_is(const cJSON *value, const char *type)
{
    bool whole = cJSON_IsNumber(value) && floor(value->valuedouble) == value->valuedouble;
    return (strcmp(type, "object") == 0 && cJSON_IsObject(value)) ||
           (strcmp(type, "array") == 0 && cJSON_IsArray(value)) ||
           (strcmp(type, "string") == 0 && cJSON_IsString(value)) ||
           (strcmp(type, "boolean") == 0 && cJSON_IsBool(value)) ||
           (strcmp(type, "null") == 0 && cJSON_IsNull(value)) ||
           (strcmp(type, "integer") == 0 && whole) ||
           (strcmp(type, "number") == 0 && cJSON_IsNumber(value));
}

static inline bool schema_type(SchemaCheck *check, const cJSON *types, const cJSON *value)
{
    bool good = cJSON_IsString(types) && schema_type_is(value, types->valuestring);
    const cJSON *type;
    cJSON_ArrayForEach(type, types) {
        good = good || schema_type_is(value, type->valuestring);
    }
    return good || schema_fails(check, "has another type than", cJSON_IsString(types)
                                                                    ? types->valuestring
                                                                    : "those allowed");
}

static inline bool schema_check(SchemaCheck *check, const cJSON *schema, const cJSON *value);

/* One step down in the path that a failure names. */
static inline bool schema_below(SchemaCheck *check, const char *step, const cJSON *schema,
                                const cJSON *value)
{
    size_t n = strlen(check->path);
    (void)str_format(check->path + n, sizeof check->path - n, "/%s", step);
    bool good = schema_check(check, schema, value);
    check->path[n] = '\0';
    return good;
}

static inline bool schema_object(SchemaCheck *check, const cJSON *schema, const cJSON *value)
{
    const cJSON *properties = json_get(schema, "properties");
    const cJSON *name;
    const cJSON *member;
    cJSON_ArrayForEach(name, json_get(schema, "required")) {
        if (!json_get(value, name->valuestring)) {
            return schema_fails(check, "lacks", name->valuestring);
        }
    }
    cJSON_ArrayForEach(member, value) {
        const cJSON *rule = json_get(properties, member->string);
        if (rule && !schema_below(check, member->string, rule, member)) {
            return false;
        }
        if (!rule && cJSON_IsFalse(json_get(schema, "additionalProperties"))) {
            return schema_fails(check, "has an unknown member", member->string);
        }
    }
    return true;
}

static inline bool schema_array(SchemaCheck *check, const cJSON *items, const cJSON *value)
{
    const cJSON *item;
    int at = 0;
    char step[16];
    cJSON_ArrayForEach(item, value) {
        (void)str_format(step, sizeof step, "%d", at++);
        if (!schema_below(check, step, items, item)) {
            return false;
        }
    }
    return true;
}

static inline bool schema_enum(SchemaCheck *check, const cJSON *words, const cJSON *value)
{
    const cJSON *word;
    cJSON_ArrayForEach(word, words) {
        if (cJSON_Compare(word, value, true)) {
            return true;
        }
    }
    return schema_fails(check, "is none of the words allowed:",
                        cJSON_IsString(value) ? value->valuestring : "(no string)");
}

static inline bool schema_keyword(SchemaCheck *check, const cJSON *rule, const cJSON *value)
{
    static const char prefix[] = "#/$defs/";
    const char *key = rule->string;
    if (strcmp(key, "$ref") == 0) {
        const char *name = rule->valuestring + sizeof prefix - 1;
        const cJSON *to = json_get(json_get(check->root, "$defs"), name);
        return to ? schema_check(check, to, value) : schema_fails(check, "no such $defs:", name);
    }
    if (strcmp(key, "type") == 0) {
        return schema_type(check, rule, value);
    }
    if (strcmp(key, "const") == 0) {
        return cJSON_Compare(rule, value, true) ||
               schema_fails(check, "is not", rule->valuestring);
    }
    if (strcmp(key, "enum") == 0) {
        return schema_enum(check, rule, value);
    }
    if (strcmp(key, "minimum") == 0) {
        return !cJSON_IsNumber(value) || value->valuedouble >= rule->valuedouble ||
               schema_fails(check, "is below", "the minimum");
    }
    if (strcmp(key, "items") == 0) {
        return !cJSON_IsArray(value) || schema_array(check, rule, value);
    }
    static const char *const others[] = {"required", "properties", "additionalProperties",
                                         "description", "title", "$schema", "$defs"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(key, others[i]) == 0) {
            return true;
        }
    }
    return schema_fails(check, "unknown keyword in the schema:", key);
}

static inline bool schema_check(SchemaCheck *check, const cJSON *schema, const cJSON *value)
{
    const cJSON *rule;
    cJSON_ArrayForEach(rule, schema) {
        if (!schema_keyword(check, rule, value)) {
            return false;
        }
    }
    return !cJSON_IsObject(value) || schema_object(check, schema, value);
}

/* The whole of `value` against `schema`; a failure is printed with its place. */
static inline bool schema_holds(const cJSON *root, const cJSON *schema, const cJSON *value,
                                char why[512])
{
    SchemaCheck check = {.root = root};
    bool good = schema_check(&check, schema, value);
    (void)str_format(why, 512, "%s", check.why);
    return good;
}

#endif
