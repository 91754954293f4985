/* A reply that is one JSON object: engine and frontend answer most calls with one. */
#ifndef ROLLTOP_SERVE_REPLY_H
#define ROLLTOP_SERVE_REPLY_H

#include "core/base/json.h"
#include "core/net/http_server.h"

/* Opens the object in `body`, which takes at most `max` bytes. */
void reply_open(Text *body, JsonOut *json, size_t max);
/* Closes the object, sends it and frees the body. An object that did not fit is no JSON: 500. */
void reply_send(HttpExchange *exchange, int status, Text *body, JsonOut *json);
/* The same with further header lines, NULL-terminated; may be NULL. */
void reply_send_with(HttpExchange *exchange, int status, Text *body, JsonOut *json,
                     const char *const *headers);

#endif
