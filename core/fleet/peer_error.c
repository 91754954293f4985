/* Error bodies of SGLang and Dynamo in one extractor. */
#include "core/fleet/peer_error.h"

#include "core/base/json.h"
#include "core/fleet/json_cursor.h"

#include <string.h>

enum { PEER_ERROR_BODY_MAX = 256 << 10 };

/* First line, control bytes as blanks, cut so that no UTF-8 sequence is split. */
static void clean(Str text, char *out, size_t size)
{
    text = str_trim(text);
    size_t n = 0;
    size_t line = text.n;
    const char *lf = text.n > 0 ? memchr(text.p, '\n', text.n) : NULL;
    if (lf) {
        line = (size_t)(lf - text.p);
    }
    for (; n < line && n < size - 1; n++) {
        unsigned char ch = (unsigned char)text.p[n];
        out[n] = ch < 0x20 || ch == 0x7F ? ' ' : text.p[n];
    }
    if (n < text.n) {
        while (n > 0 && ((unsigned char)text.p[n] & 0xC0) == 0x80) {
            n--;
        }
    }
    out[n] = '\0';
}

void peer_error_clean(Str raw_json_string, char *out, size_t size)
{
    Text text;
    text_init(&text, 4096);
    (void)json_decode(str_slice(raw_json_string, 0, 2048), &text); /* cut is fine: one line */
    clean(text_str(&text), out, size);
    text_free(&text);
}

static bool take(PeerError *error, const cJSON *object, const char *key)
{
    const char *text = json_string(object, key, NULL);
    if (!text) {
        return false;
    }
    clean(str_from(text), error->text, sizeof error->text);
    error->known = true;
    return true;
}

PeerError peer_error_read(Str body)
{
    PeerError error = {0};
    cJSON *tree = NULL;
    clean(body, error.text, sizeof error.text);
    if (json_parse(body, PEER_ERROR_BODY_MAX, "error body", &tree, NULL) != ERR_OK) {
        return error;
    }
    const cJSON *inner = json_get(tree, "error");
    double code = json_double(tree, "code", 0);
    if (cJSON_IsObject(inner)) {
        code = json_double(inner, "code", code);
        if (!take(&error, inner, "message")) {
            error.known = true;
        }
    } else if (!take(&error, tree, "error") && !take(&error, tree, "message")) {
        (void)take(&error, tree, "detail");
    }
    error.code = code >= 100 && code < 600 ? (int)code : 0;
    cJSON_Delete(tree);
    return error;
}
