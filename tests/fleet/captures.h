/* Recorded exchanges of real peers, see tests/data/captures/README.md. */
#ifndef ROLLTOP_TESTS_FLEET_CAPTURES_H
#define ROLLTOP_TESTS_FLEET_CAPTURES_H

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

typedef struct Captures {
    char *bytes;
    size_t n;
} Captures;

static inline Captures captures_load(void)
{
    Captures all = {NULL, 0};
    Text packed;
    text_init(&packed, 8 << 20);
    Fault fault = {0};
    if (fs_read(ROLLTOP_TEST_DATA "/captures/captures.zst", &packed, &fault) != ERR_OK) {
        fault_print(&fault);
        exit(1);
    }
    unsigned long long size = ZSTD_getFrameContentSize(packed.p, packed.n);
    if (size > 64u << 20) {
        fprintf(stderr, "captures.zst is damaged\n");
        exit(1);
    }
    all.bytes = malloc((size_t)size);
    all.n = ZSTD_decompress(all.bytes, (size_t)size, packed.p, packed.n);
    if (ZSTD_isError(all.n)) {
        fprintf(stderr, "captures.zst is damaged\n");
        exit(1);
    }
    text_free(&packed);
    return all;
}

static inline void captures_free(Captures *all)
{
    free(all->bytes);
}

/* Next record behind *at; false at the end. */
static inline bool captures_next(const Captures *all, size_t *at, char name[128], Str *bytes)
{
    Str rest = {all->bytes + *at, all->n - *at};
    Str line;
    size_t blank = 0;
    int64_t n = 0;
    if (*at >= all->n || !str_split(&rest, '\n', &line) || !str_starts(line, STR("=== "))
        || !str_rfind(line, STR(" "), &blank) || blank < 5 || blank - 4 >= 128
        || !str_to_i64(str_slice(line, blank + 1, line.n), &n)) {
        return false;
    }
    memcpy(name, line.p + 4, blank - 4);
    name[blank - 4] = '\0';
    size_t used = line.n + 1;
    *bytes = (Str){all->bytes + *at + used, (size_t)n};
    *at += used + (size_t)n + 1;
    return true;
}

/* One by name; a name that is not there ends the test. */
static inline Str captures_get(const Captures *all, const char *wanted)
{
    size_t at = 0;
    char name[128];
    Str bytes;
    while (captures_next(all, &at, name, &bytes)) {
        if (strcmp(name, wanted) == 0) {
            return bytes;
        }
    }
    fprintf(stderr, "no capture %s\n", wanted);
    exit(1);
}

typedef struct CaptureReply {
    int status;
    Str body; /* of a reply that is not chunked: as it is */
} CaptureReply;

static inline CaptureReply capture_reply(Str bytes)
{
    CaptureReply reply = {0, {NULL, 0}};
    size_t at = 0;
    if (!str_find(bytes, STR("HTTP/1.1 "), &at)) {
        return reply;
    }
    /* A request comes first in most of them; the reply's status line begins a line. */
    while (at > 0 && bytes.p[at - 1] != '\n') {
        size_t more = 0;
        if (!str_find(str_slice(bytes, at + 1, bytes.n), STR("HTTP/1.1 "), &more)) {
            return reply;
        }
        at += 1 + more;
    }
    reply.status = atoi(bytes.p + at + 9);
    Str rest = str_slice(bytes, at, bytes.n);
    size_t blank = 0;
    size_t crlf = 0;
    bool lf_ends = str_find(rest, STR("\n\n"), &blank);
    if (str_find(rest, STR("\r\n\r\n"), &crlf) && (!lf_ends || crlf < blank)) {
        reply.body = str_slice(rest, crlf + 4, rest.n);
    } else if (lf_ends) {
        reply.body = str_slice(rest, blank + 2, rest.n);
    }
    size_t end = 0;
    if (str_find(reply.body, STR("# ---- end"), &end)) {
        reply.body = str_trim(str_slice(reply.body, 0, end));
    }
    return reply;
}

/* The SSE bytes of a recorded stream, without chunk sizes and marks. */
static inline void capture_sse(Str bytes, Text *out)
{
    Str rest = capture_reply(bytes).body;
    Str line;
    text_init(out, 8 << 20);
    while (str_split(&rest, '\n', &line)) {
        if (str_starts(line, STR("data: "))) {
            text_add_str(out, line);
            text_add_c(out, "\n\n");
        }
    }
}

#endif
