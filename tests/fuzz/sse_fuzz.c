#include "tests/fuzz/fuzz.h"

#include "core/base/hash.h"
#include "core/net/sse.h"

#include <stdlib.h>

const char *const fuzz_seeds[] = {
    "data: {\"text\":\"a\"}\n\ndata: [DONE]\n\n",
    ": comment\r\nevent: x\r\ndata: a\r\ndata: b\r\n\r\n",
    "\xef\xbb\xbf" "data: bom\n\n", "data:a\rdata:b\r\rid: 1\n\n", "retry: 5\ndata\n\n", NULL};

typedef struct Seen {
    uint64_t hash;
    int events;
} Seen;

static bool on_event(Str data, void *user)
{
    Seen *seen = user;
    seen->hash = hash64(data.p, data.n, seen->hash + 1);
    seen->events++;
    return true;
}

static Seen feed(const uint8_t *data, size_t size, size_t piece)
{
    Seen seen = {0, 0};
    Sse *sse = sse_new(4096, on_event, &seen);
    for (size_t at = 0; at < size; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        if (sse_feed(sse, (Str){(const char *)data + at, n}) != ERR_OK) {
            break;
        }
    }
    sse_free(sse);
    return seen;
}

/* The events must not depend on how the bytes were cut into pieces. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 4000) {
        return 0; /* over the bound the point of refusal may depend on the pieces */
    }
    Seen whole = feed(data, size, size ? size : 1);
    Seen bytes = feed(data, size, 1);
    Seen threes = feed(data, size, 3);
    if (whole.hash != bytes.hash || whole.events != bytes.events || whole.hash != threes.hash) {
        abort();
    }
    return 0;
}
