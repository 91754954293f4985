/* Server-sent events (WHATWG HTML §9.2.6), incremental. Streams of some 100 to 2,000 bytes an
 * event, up to thousands of streams: the common case (one data line, event whole in one piece)
 * costs two memchr passes and no copy. */
#include "core/net/sse.h"

#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

struct Sse {
    SseEvent on_event;
    void *user;
    size_t max_event;
    Text line;       /* beginning of a line whose end has not come yet */
    Text data;       /* data lines of the open event, when they had to be copied */
    Str borrowed;    /* the one data line of the open event, still inside the present piece */
    bool has_data;   /* the open event has a data line */
    bool skip_lf;    /* the last piece ended in CR: an LF now belongs to it */
    bool first_line; /* a BOM may stand here */
    Err failed;
};

Sse *sse_new(size_t max_event, SseEvent on_event, void *user)
{
    Sse *sse = xcalloc(1, sizeof *sse);
    sse->on_event = on_event;
    sse->user = user;
    sse->max_event = max_event;
    text_init(&sse->line, max_event + 16); /* room for "data: " and a BOM */
    text_init(&sse->data, max_event);
    sse->first_line = true;
    return sse;
}

void sse_free(Sse *sse)
{
    if (!sse) {
        return;
    }
    text_free(&sse->line);
    text_free(&sse->data);
    free(sse);
}

bool sse_pending(const Sse *sse)
{
    return sse->has_data || sse->line.n > 0;
}

/* Moves a borrowed data line into our own buffer. */
static Err keep_borrowed(Sse *sse)
{
    if (sse->borrowed.p) {
        Str line = sse->borrowed;
        sse->borrowed = (Str){NULL, 0};
        if (!text_add_str(&sse->data, line)) {
            return ERR_LIMIT;
        }
    }
    return ERR_OK;
}

static Err add_data(Sse *sse, Str value, bool in_piece)
{
    if (value.n > sse->max_event) {
        return ERR_LIMIT;
    }
    if (!sse->has_data) {
        sse->has_data = true;
        if (in_piece) {
            sse->borrowed = value;
            return ERR_OK;
        }
        return text_add_str(&sse->data, value) ? ERR_OK : ERR_LIMIT;
    }
    Err err = keep_borrowed(sse);
    if (err) {
        return err;
    }
    return text_add_char(&sse->data, '\n') && text_add_str(&sse->data, value) ? ERR_OK : ERR_LIMIT;
}

static Err dispatch(Sse *sse)
{
    if (!sse->has_data) {
        return ERR_OK;
    }
    Str event = sse->borrowed.p ? sse->borrowed : text_str(&sse->data);
    bool go_on = sse->on_event(event, sse->user);
    sse->has_data = false;
    sse->borrowed = (Str){NULL, 0};
    text_clear(&sse->data);
    return go_on ? ERR_OK : ERR_CANCELLED;
}

static Err take_line(Sse *sse, Str line, bool in_piece)
{
    if (sse->first_line) {
        sse->first_line = false;
        if (str_starts(line, STR("\xEF\xBB\xBF"))) {
            line = str_slice(line, 3, line.n);
        }
    }
    if (line.n == 0) {
        return dispatch(sse);
    }
    if (line.n < 4 || memcmp(line.p, "data", 4) != 0 || (line.n > 4 && line.p[4] != ':')) {
        return ERR_OK; /* comment or a field that we have no use for */
    }
    size_t from = line.n == 4 ? 4 : 5;
    if (line.n > from && line.p[from] == ' ') {
        from++;
    }
    return add_data(sse, (Str){line.p + from, line.n - from}, in_piece);
}

/* A line ended: it is `tail`, behind what earlier pieces brought of it. */
static Err end_line(Sse *sse, Str tail)
{
    if (sse->line.n == 0) {
        return take_line(sse, tail, true);
    }
    if (!text_add_str(&sse->line, tail)) {
        return ERR_LIMIT;
    }
    Err err = take_line(sse, text_str(&sse->line), false);
    text_clear(&sse->line);
    return err;
}

static Err feed_lines(Sse *sse, const char *p, const char *end)
{
    const char *lf = NULL; /* the next LF; searched again only once it is passed, so that a
                              piece of nothing but CRs stays linear */
    bool lf_known = false;
    while (p < end) {
        if (!lf_known || (lf && lf < p)) {
            lf = memchr(p, '\n', (size_t)(end - p));
            lf_known = true;
        }
        const char *stop = lf ? lf : end;
        const char *cr = memchr(p, '\r', (size_t)(stop - p));
        const char *eol = cr ? cr : lf;
        if (!eol) {
            break;
        }
        const char *next = eol + 1;
        if (cr) {
            if (next == end) {
                sse->skip_lf = true;
            } else if (*next == '\n') {
                next++;
            }
        }
        Err err = end_line(sse, (Str){p, (size_t)(eol - p)});
        if (err) {
            return err;
        }
        p = next;
    }
    if (p < end && !text_add(&sse->line, p, (size_t)(end - p))) {
        return ERR_LIMIT;
    }
    return keep_borrowed(sse); /* the piece is the caller's again */
}

Err sse_feed(Sse *sse, Str piece)
{
    if (sse->failed || piece.n == 0) {
        return sse->failed;
    }
    const char *p = piece.p;
    const char *end = piece.p + piece.n;
    if (sse->skip_lf) {
        sse->skip_lf = false;
        if (*p == '\n') {
            p++;
        }
    }
    sse->failed = feed_lines(sse, p, end);
    return sse->failed;
}
