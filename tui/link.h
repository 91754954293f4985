/* The console's end of the core's control socket: sends what the model put into its outbox, gives
 * replies back in order. A link that is lost is tried again every few seconds. */
#ifndef ROLLTOP_TUI_LINK_H
#define ROLLTOP_TUI_LINK_H

#include "core/net/ctl.h"
#include "tui/model.h"

typedef struct Link {
    const char *socket; /* borrowed; NULL: this console only looks */
    CtlClient *client;
    int awaiting[MODEL_PENDING_MAX]; /* pendings whose replies are to come, in order */
    int awaiting_count;
    int64_t next_connect_us; /* monotonic */
} Link;

void link_open(Link *link, Model *model); /* when it is time to try; bounded by 200 ms */
void link_send(Link *link, Model *model); /* empties the outbox */
void link_take(Link *link, Model *model); /* whatever replies are there */
int link_fd(const Link *link);            /* -1 without a link */
void link_close(Link *link);

#endif
