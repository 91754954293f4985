/* Prometheus text of one engine (sglang-api 10), one pass over the lines. Series of several
 * data-parallel ranks are added up; series of single priorities are parts of the one without. */
#include "core/fleet/engine_routes.h"

#include <math.h>
#include <string.h>

typedef enum Fold { FOLD_SUM, FOLD_MAX } Fold;

typedef struct Series {
    const char *name;   /* behind "sglang:" */
    const char *label;  /* must stand in the labels; NULL any */
    Fold fold;
    size_t offset;      /* of a double in EngineAnswer */
} Series;

enum { SERIES_DECODE, SERIES_GENERATED, SERIES_RUNNING };
static const Series series[] = {
    [SERIES_DECODE] = {"realtime_tokens_total", "mode=\"decode\"", FOLD_SUM,
                       offsetof(EngineAnswer, gen_tokens_total)},
    /* Moves only when a request ends, so it is the second choice. */
    [SERIES_GENERATED] = {"generation_tokens_total", NULL, FOLD_SUM,
                          offsetof(EngineAnswer, gen_tokens_total)},
    [SERIES_RUNNING] = {"num_running_reqs", NULL, FOLD_SUM, offsetof(EngineAnswer, running)},
    {"num_queue_reqs", NULL, FOLD_SUM, offsetof(EngineAnswer, waiting)},
    {"num_used_tokens", NULL, FOLD_SUM, offsetof(EngineAnswer, used_tokens)},
    {"token_usage", NULL, FOLD_MAX, offsetof(EngineAnswer, token_usage)},
    {"gen_throughput", NULL, FOLD_SUM, offsetof(EngineAnswer, gen_throughput)},
    {"cache_hit_rate", NULL, FOLD_MAX, offsetof(EngineAnswer, cache_hit_rate)},
    {"num_retracted_requests_total", NULL, FOLD_SUM, offsetof(EngineAnswer, retracted_total)},
};
enum { SERIES_COUNT = sizeof series / sizeof series[0] };

/* NAME{LABELS} VALUE; false when it is not one of ours. */
static bool read_line(Str line, Str *name, Str *labels, double *value)
{
    size_t at = 0;
    line = str_trim(line);
    if (!str_starts(line, STR("sglang:")) || !str_rfind(line, STR(" "), &at)
        || !str_to_double(str_slice(line, at + 1, line.n), value)) {
        return false;
    }
    Str head = str_slice(line, 7, at);
    size_t brace = 0;
    *labels = (Str){NULL, 0};
    *name = head;
    if (str_find(head, STR("{"), &brace)) {
        *name = str_slice(head, 0, brace);
        *labels = str_slice(head, brace, head.n);
    }
    *name = str_trim(*name);
    return true;
}

static bool one_priority(Str labels)
{
    size_t at = 0;
    return str_find(labels, STR("priority=\""), &at)
           && !str_starts(str_slice(labels, at + 10, labels.n), STR("\""));
}

void engine_parse_metrics(Str body, EngineAnswer *answer)
{
    double values[SERIES_COUNT] = {0};
    bool seen[SERIES_COUNT] = {false};
    Str line;
    while (str_split(&body, '\n', &line)) {
        Str name;
        Str labels;
        double value = 0;
        size_t at = 0;
        if (line.n > 4096 || !read_line(line, &name, &labels, &value) || one_priority(labels)) {
            continue;
        }
        for (size_t i = 0; i < SERIES_COUNT; i++) {
            const Series *s = &series[i];
            if (!str_equal(name, str_from(s->name))
                || (s->label && !str_find(labels, str_from(s->label), &at))) {
                continue;
            }
            values[i] = !seen[i] ? value : s->fold == FOLD_SUM ? values[i] + value
                                                              : fmax(values[i], value);
            seen[i] = true;
        }
    }
    for (size_t i = 0; i < SERIES_COUNT; i++) {
        seen[i] = seen[i] && isfinite(values[i]); /* a sum that overflows is no figure */
        if (seen[i] && !(i == SERIES_GENERATED && seen[SERIES_DECODE])) {
            memcpy((char *)answer + series[i].offset, &values[i], sizeof values[i]);
        }
    }
    answer->known_running = seen[SERIES_RUNNING];
    answer->known_tokens = seen[SERIES_DECODE] || seen[SERIES_GENERATED];
}
