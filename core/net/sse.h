/* Server-sent events, incremental and pure: feed bytes as they come, get each event's data.
 * Accepts LF, CRLF and CR line ends, comments, event/id/retry fields (ignored), several data
 * lines (joined by LF), a leading BOM. A line over the bound is an error, never a silent cut.
 * One event is handed over without copying when it lies whole in one piece. */
#ifndef ROLLTOP_NET_SSE_H
#define ROLLTOP_NET_SSE_H

#include "core/base/str.h"

typedef struct Sse Sse;
/* Return false to stop feeding (sse_feed then returns ERR_CANCELLED). */
typedef bool (*SseEvent)(Str data, void *user);

Sse *sse_new(size_t max_event, SseEvent on_event, void *user);
void sse_free(Sse *sse);
Err sse_feed(Sse *sse, Str piece); /* ERR_LIMIT: event over the bound */
/* Bytes of an unfinished event are held: a stream that ends now was cut. For tests. */
bool sse_pending(const Sse *sse);

#endif
