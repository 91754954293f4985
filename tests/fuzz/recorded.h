/* Seeds from tests/data/captures: those whose name holds one of `words`, from the reply's status
 * line on (`whole`) or its body alone. One file a process includes it. */
#ifndef ROLLTOP_TESTS_FUZZ_RECORDED_H
#define ROLLTOP_TESTS_FUZZ_RECORDED_H

#include "tests/fleet/captures.h"
#include "tests/fuzz/fuzz.h"

static inline bool recorded_wanted(const char *name, const char *const *words)
{
    bool wanted = false;
    for (size_t i = 0; words[i] && !wanted; i++) {
        wanted = strstr(name, words[i]) != NULL;
    }
    return wanted;
}

static inline bool recorded_next(const char *const *words, bool whole, size_t position,
                                 const uint8_t **data, size_t *size)
{
    static Captures captures;
    size_t at = 0;
    char name[128];
    Str bytes;
    if (!captures.bytes) {
        captures = captures_load();
    }
    for (size_t seen = 0; captures_next(&captures, &at, name, &bytes);) {
        CaptureReply reply = capture_reply(bytes);
        if (reply.status == 0 || !recorded_wanted(name, words) || seen++ != position) {
            continue;
        }
        size_t line = 0;
        if (whole && str_rfind(bytes, STR("\nHTTP/1.1 "), &line)) {
            reply.body = str_slice(bytes, line + 1, bytes.n);
        }
        *data = (const uint8_t *)reply.body.p;
        *size = reply.body.n;
        return reply.body.n > 0 || recorded_next(words, whole, position + 1, data, size);
    }
    free(captures.bytes);
    captures = (Captures){0};
    return false;
}

#endif
