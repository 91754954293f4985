#include "tui/link.h"

#include "core/base/clock.h"

#include <string.h>

enum { RETRY_US = 4000000, CONNECT_MS = 200 };

static void unlink_core(Link *link, Model *model)
{
    int64_t now = clock_wall_us();
    ctl_client_free(link->client);
    link->client = NULL;
    model->linked = false;
    for (int i = 0; i < link->awaiting_count; i++) {
        act_reply(model, link->awaiting[i], false, 0,
                  "the core closed the connection before it answered", now);
    }
    link->awaiting_count = 0;
    link->next_connect_us = clock_mono_us() + RETRY_US;
}

void link_open(Link *link, Model *model)
{
    Fault fault = {0};
    if (!link->socket || link->client || clock_mono_us() < link->next_connect_us) {
        return;
    }
    if (ctl_connect(link->socket, CONNECT_MS, &link->client, &fault) != ERR_OK) {
        link->client = NULL;
        link->next_connect_us = clock_mono_us() + RETRY_US;
        return;
    }
    model->linked = true;
}

void link_send(Link *link, Model *model)
{
    for (int i = 0; i < model->outbox_count; i++) {
        Fault fault = {0};
        const Outgoing *out = &model->outbox[i];
        Err err = ERR_STATE;
        if (link->client && link->awaiting_count < MODEL_PENDING_MAX) {
            err = ctl_send(link->client, str_from(out->json), &fault);
        }
        if (err == ERR_OK) {
            link->awaiting[link->awaiting_count++] = out->pending;
        } else {
            act_reply(model, out->pending, false, 0,
                      fault.sentence[0] ? fault.sentence : "the core does not answer",
                      clock_wall_us());
        }
    }
    model->outbox_count = 0;
}

void link_take(Link *link, Model *model)
{
    while (link->client) {
        cJSON *reply = NULL;
        Fault fault = {0};
        Err err = ctl_poll_reply(link->client, &reply, &fault);
        if (err == ERR_TIMEOUT) {
            return;
        }
        if (err != ERR_OK) {
            unlink_core(link, model);
            return;
        }
        if (link->awaiting_count > 0) {
            act_reply(model, link->awaiting[0], json_bool(reply, "ok", false),
                      json_i64(reply, "command", 0), json_string(reply, "message", ""),
                      clock_wall_us());
            link->awaiting_count--;
            memmove(link->awaiting, link->awaiting + 1,
                    (size_t)link->awaiting_count * sizeof link->awaiting[0]);
        }
        cJSON_Delete(reply);
    }
}

int link_fd(const Link *link)
{
    return link->client ? ctl_client_fd(link->client) : -1;
}

void link_close(Link *link)
{
    ctl_client_free(link->client);
    link->client = NULL;
}
