#include "core/fleet/readiness.h"

#include "core/base/json.h"

#include <string.h>

enum { BODY_MAX = 4 << 20 };

/* A path segment: a model may be called "/ckpt/step 7". */
static void encode(const char *name, char *out, size_t size)
{
    static const char hex[] = "0123456789ABCDEF";
    size_t n = strlen(out);
    for (const char *p = name; *p && n + 4 < size; p++) {
        unsigned char c = (unsigned char)*p;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     strchr("-._~", c) != NULL;
        if (plain) {
            out[n++] = (char)c;
        } else {
            out[n++] = '%';
            out[n++] = hex[c >> 4];
            out[n++] = hex[c & 15];
        }
    }
    out[n] = '\0';
}

bool readiness_path(ReadinessState *s, int64_t now_us, char out[READINESS_PATH])
{
    s->asked_models = now_us >= s->models_due_us;
    if (s->asked_models) {
        s->models_due_us = now_us + READINESS_MODELS_US;
        (void)str_format(out, READINESS_PATH, "/v1/models");
        return true;
    }
    if (!s->model[0] || now_us < s->ready_due_us || s->now == READINESS_SPLIT) {
        return false;
    }
    (void)str_format(out, READINESS_PATH, "/v1/models/");
    encode(s->model, out, READINESS_PATH - 8);
    size_t n = strlen(out);
    (void)str_format(out + n, READINESS_PATH - n, "/ready");
    return true;
}

static void set(ReadinessState *s, Readiness now, int workers, const char *words)
{
    s->settled = now != READINESS_UNKNOWN;
    s->now = now;
    s->workers = workers;
    (void)str_format(s->words, sizeof s->words, "%s", words);
}

static void take_models(ReadinessState *s, int status, const cJSON *body, int64_t now_us)
{
    const cJSON *list = json_get(body, "data");
    const cJSON *item = NULL;
    char words[160] = "";
    int count = 0;
    if (status == 404 || status == 405 || status == 501 || (status == 200 && !list)) {
        s->models_due_us = now_us + READINESS_AGAIN_US;
        set(s, READINESS_UNKNOWN, 0, "it has no list of models");
        s->settled = true;
        return;
    }
    if (status != 200 || !cJSON_IsArray(list)) {
        return; /* draining, or a fault of its own: nothing new is known */
    }
    cJSON_ArrayForEach(item, list) {
        const char *id = json_string(item, "id", "");
        size_t n = strlen(words);
        (void)str_format(words + n, sizeof words - n, "%s%.60s", n ? ", " : "", id);
        if (count++ == 0 && strlen(id) < sizeof s->model) {
            (void)str_format(s->model, sizeof s->model, "%s", id);
        }
    }
    if (count > 1) {
        char text[160];
        (void)str_format(text, sizeof text, "it has %d models (%.100s) and refuses every request",
                         count, words);
        set(s, READINESS_SPLIT, 0, text);
    } else if (count == 0 && !s->model[0]) {
        set(s, READINESS_NONE, 0, "it has no model yet");
    } else if (s->now == READINESS_SPLIT) {
        set(s, READINESS_UNKNOWN, 0, "one model again");
    }
}

/* Workers of every kind in every namespace. */
static int count_workers(const cJSON *body)
{
    const cJSON *space = NULL;
    int64_t workers = 0;
    cJSON_ArrayForEach(space, json_get(body, "namespaces")) {
        const cJSON *kind = NULL;
        cJSON_ArrayForEach(kind, json_get(space, "worker_types")) {
            workers += json_i64(kind, "workers", 0);
        }
    }
    return workers >= 0 && workers < 1000000 ? (int)workers : 0;
}

static void take_ready(ReadinessState *s, int status, const cJSON *body, int64_t now_us)
{
    const cJSON *ready = json_get(body, "ready");
    char words[160];
    if ((status == 200 || status == 503) && cJSON_IsBool(ready)) {
        s->route = true;
        bool yes = cJSON_IsTrue(ready);
        (void)str_format(words, sizeof words, "%.60s: %.90s", s->model,
                         yes ? "ready" : json_string(body, "reason", "not ready"));
        set(s, yes ? READINESS_READY : READINESS_NONE, yes ? count_workers(body) : 0, words);
    } else if (status == 404 && s->route) {
        (void)str_format(words, sizeof words, "%.60s is no longer a model of it", s->model);
        s->model[0] = '\0';
        s->models_due_us = 0;
        set(s, READINESS_NONE, 0, words);
    } else if (status == 404 || status == 405 || status == 501 || status == 200) {
        s->ready_due_us = now_us + READINESS_AGAIN_US;
        set(s, READINESS_UNKNOWN, 0, "it does not say whether a model is ready");
        s->settled = true;
    }
}

bool readiness_reply(ReadinessState *s, int status, Str body, int64_t now_us)
{
    const Readiness before = s->now;
    cJSON *tree = NULL;
    (void)json_parse(body, BODY_MAX, "models", &tree, NULL);
    if (s->asked_models) {
        take_models(s, status, tree, now_us);
    } else {
        take_ready(s, status, tree, now_us);
    }
    cJSON_Delete(tree);
    return s->now != before;
}
