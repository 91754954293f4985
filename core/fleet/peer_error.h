/* Private to fleet: the words of a peer's error body, whatever its shape (sglang-api 2.2,
 * dynamo-api 5.3). Bytes from outside: cut at the first line, cleaned, bounded; validation
 * messages carry the server's paths and the offending input behind the first line. */
#ifndef ROLLTOP_FLEET_PEER_ERROR_H
#define ROLLTOP_FLEET_PEER_ERROR_H

#include "core/base/str.h"

typedef struct PeerError {
    bool known;      /* one of the known shapes */
    int code;        /* a status that the body names; 0 none */
    char text[160];
} PeerError;

/* .error.message, .error, .message, .detail, else the raw text. */
PeerError peer_error_read(Str body);
/* First line of a text (JSON escapes decoded), without control bytes, cut on a UTF-8 border. */
void peer_error_clean(Str raw_json_string, char *out, size_t size);

#endif
