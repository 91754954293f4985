#include "core/serve/reply.h"

void reply_open(Text *body, JsonOut *json, size_t max)
{
    text_init(body, max);
    json_begin(json, body);
    json_object_begin(json);
}

void reply_send_with(HttpExchange *exchange, int status, Text *body, JsonOut *json,
                     const char *const *headers)
{
    json_object_end(json);
    Str text = text_str(body);
    if (body->cut) {
        status = 500;
        text = STR("{\"error\":{\"message\":\"the reply is over its bound\"}}");
    }
    http_reply(exchange, status, "application/json", text, headers);
    text_free(body);
}

void reply_send(HttpExchange *exchange, int status, Text *body, JsonOut *json)
{
    reply_send_with(exchange, status, body, json, NULL);
}
