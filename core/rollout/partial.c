#include "core/rollout/partial.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 1 << 30 };

static void *joined(const void *first, size_t first_count, const void *second,
                    size_t second_count, size_t size)
{
    char *all = xcalloc(first_count + second_count + 1, size);
    if (first_count > 0) {
        memcpy(all, first, first_count * size);
    }
    if (second_count > 0) {
        memcpy(all + first_count * size, second, second_count * size);
    }
    return all;
}

void partial_join(Partial *p, const RolloutSample *kept, const RolloutAttemptEnd *newest)
{
    const bool known = newest->logprobs || newest->count == 0;
    *p = (Partial){.kept = kept->count, .count = kept->count + newest->count};
    text_init(&p->text, TEXT_MAX);
    p->ids = joined(kept->ids, kept->count, newest->ids, newest->count, sizeof *p->ids);
    p->logprobs = known ? joined(kept->logprobs, kept->count, newest->logprobs, newest->count,
                                 sizeof *p->logprobs)
                        : NULL;
    p->spans = joined(kept->spans, kept->span_count, newest->spans, newest->span_count,
                      sizeof *p->spans);
    p->span_count = kept->span_count;
    for (size_t i = 0; i < newest->span_count; i++) {
        SampleSpan next = newest->spans[i];
        next.from += (int32_t)kept->count;
        next.to += (int32_t)kept->count;
        SampleSpan *last = p->span_count > 0 ? &p->spans[p->span_count - 1] : NULL;
        if (last && last->policy_version == next.policy_version && last->to == next.from) {
            last->to = next.to;
        } else {
            p->spans[p->span_count++] = next;
        }
    }
}

void partial_free(Partial *p)
{
    free(p->ids);
    free(p->logprobs);
    free(p->spans);
    text_free(&p->text);
    *p = (Partial){0};
}

static bool has_stop(Str text, size_t from, const char *const *stops)
{
    for (const char *const *stop = stops; *stop; stop++) {
        size_t n = strlen(*stop);
        size_t at = 0;
        size_t begin = from + 1 > n ? from + 1 - n : 0; /* it must reach past `from` */
        if (n > 0 && str_find(str_slice(text, begin, text.n), str_from(*stop), &at) &&
            begin + at < from) {
            return true;
        }
    }
    return false;
}

static void cut_at(Partial *p, size_t count)
{
    p->count = count;
    while (p->span_count > 0 && p->spans[p->span_count - 1].from >= (int32_t)count) {
        p->span_count--;
    }
    if (p->span_count > 0 && p->spans[p->span_count - 1].to > (int32_t)count) {
        p->spans[p->span_count - 1].to = (int32_t)count;
    }
}

bool partial_decode(Partial *p, const Tokenizer *tokenizer, bool skip_special,
                    const char *const *stops)
{
    text_clear(&p->text);
    tokenizer_decode(tokenizer, p->ids, p->kept, skip_special, &p->text);
    const size_t seam = p->text.n;
    text_clear(&p->text);
    tokenizer_decode(tokenizer, p->ids, p->count, skip_special, &p->text);
    if (!stops || !has_stop(text_str(&p->text), seam, stops)) {
        return false;
    }
    for (size_t n = p->kept + 1; n <= p->count; n++) { /* it ends within a stop string's bytes */
        text_clear(&p->text);
        tokenizer_decode(tokenizer, p->ids, n, skip_special, &p->text);
        if (has_stop(text_str(&p->text), seam, stops)) {
            cut_at(p, n);
            return true;
        }
    }
    return false;
}
