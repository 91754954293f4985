#include "core/model/json_scan.h"

#include "core/base/utf8.h"

#include <string.h>

JsonScan json_scan(Str text)
{
    return (JsonScan){.p = text.p, .n = text.n};
}

bool json_scan_fail(JsonScan *s, const char *error)
{
    if (s->error == NULL) {
        s->error = error;
    }
    return false;
}

char json_scan_peek(JsonScan *s)
{
    if (s->error != NULL) {
        return 0;
    }
    while (s->at < s->n) {
        char c = s->p[s->at];
        if (c != ' ' && c != '\n' && c != '\t' && c != '\r') {
            return c;
        }
        s->at++;
    }
    return 0;
}

static bool open_bracket(JsonScan *s, char bracket, const char *error)
{
    if (json_scan_peek(s) != bracket) {
        return json_scan_fail(s, s->at < s->n ? error : "the text ends too early");
    }
    if (s->depth >= JSON_SCAN_DEPTH_MAX) {
        return json_scan_fail(s, "nesting deeper than 127 levels");
    }
    s->depth++;
    s->at++;
    return true;
}

bool json_scan_object(JsonScan *s)
{
    return open_bracket(s, '{', "an object was expected");
}

bool json_scan_array(JsonScan *s)
{
    return open_bracket(s, '[', "a list was expected");
}

/* What stood before the present place tells whether a comma is due: nothing has been consumed
 * since an opening bracket exactly when the last byte that is no blank is that bracket. */
static bool at_first(const JsonScan *s, char bracket)
{
    size_t i = s->at;
    while (i > 0 && (s->p[i - 1] == ' ' || s->p[i - 1] == '\n' || s->p[i - 1] == '\t' ||
                     s->p[i - 1] == '\r')) {
        i--;
    }
    return i > 0 && s->p[i - 1] == bracket;
}

/* True when an element follows; false at `close` (consumed) and on errors. */
static bool next_element(JsonScan *s, char opening, char closing)
{
    bool first = s->error == NULL && at_first(s, opening);
    char c = json_scan_peek(s);
    if (c == closing) {
        s->at++;
        s->depth--;
        return false;
    }
    if (first) {
        return c != 0 ? true : json_scan_fail(s, "the text ends too early");
    }
    if (c != ',') {
        return json_scan_fail(s, s->at < s->n ? "a comma or a closing bracket was expected"
                                              : "the text ends too early");
    }
    s->at++;
    if (json_scan_peek(s) == closing) {
        return json_scan_fail(s, "a comma stands before the closing bracket");
    }
    return s->error == NULL;
}

bool json_scan_item(JsonScan *s)
{
    return next_element(s, '[', ']');
}

bool json_scan_key(JsonScan *s, Text *scratch, Str *key)
{
    if (!next_element(s, '{', '}')) {
        return false;
    }
    if (json_scan_peek(s) != '"') {
        return json_scan_fail(s, "a key in double quotes was expected");
    }
    if (!json_scan_string(s, scratch, key)) {
        return false;
    }
    if (json_scan_peek(s) != ':') {
        return json_scan_fail(s, "a colon was expected behind the key");
    }
    s->at++;
    return true;
}

static bool hex4(JsonScan *s, uint32_t *out)
{
    if (s->n - s->at < 4) {
        return json_scan_fail(s, "the text ends inside \\u");
    }
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        char c = s->p[s->at++];
        uint32_t digit;
        if (c >= '0' && c <= '9') {
            digit = (uint32_t)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            digit = (uint32_t)(c - 'a' + 10);
        } else if (c >= 'A' && c <= 'F') {
            digit = (uint32_t)(c - 'A' + 10);
        } else {
            return json_scan_fail(s, "\\u needs four hex digits");
        }
        v = v * 16 + digit;
    }
    *out = v;
    return true;
}

static bool unicode_escape(JsonScan *s, Text *scratch)
{
    uint32_t code;
    if (!hex4(s, &code)) {
        return false;
    }
    if (code >= 0xDC00 && code <= 0xDFFF) {
        return json_scan_fail(s, "a lone surrogate in a string");
    }
    if (code >= 0xD800 && code <= 0xDBFF) {
        uint32_t low;
        if (s->n - s->at < 2 || s->p[s->at] != '\\' || s->p[s->at + 1] != 'u') {
            return json_scan_fail(s, "a lone surrogate in a string");
        }
        s->at += 2;
        if (!hex4(s, &low)) {
            return false;
        }
        if (low < 0xDC00 || low > 0xDFFF) {
            return json_scan_fail(s, "a lone surrogate in a string");
        }
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    char bytes[4];
    size_t n = utf8_encode(code, bytes);
    return text_add(scratch, bytes, n) || json_scan_fail(s, "a string is too long");
}

static bool escape(JsonScan *s, Text *scratch)
{
    static const char from[] = "\"\\/bfnrt";
    static const char to[] = "\"\\/\b\f\n\r\t";
    if (s->at >= s->n) {
        return json_scan_fail(s, "the text ends inside a string");
    }
    char c = s->p[s->at++];
    if (c == 'u') {
        return unicode_escape(s, scratch);
    }
    const char *place = c != 0 ? strchr(from, c) : NULL;
    if (place == NULL) {
        return json_scan_fail(s, "an unknown escape in a string");
    }
    return text_add_char(scratch, to[place - from]) || json_scan_fail(s, "a string is too long");
}

bool json_scan_string(JsonScan *s, Text *scratch, Str *out)
{
    if (json_scan_peek(s) != '"') {
        return json_scan_fail(s, s->at < s->n ? "a string was expected"
                                              : "the text ends too early");
    }
    s->at++;
    size_t from = s->at;
    bool copied = false;
    for (;;) {
        while (s->at < s->n && s->p[s->at] != '"' && s->p[s->at] != '\\' &&
               (unsigned char)s->p[s->at] >= 0x20) {
            s->at++;
        }
        if (s->at >= s->n) {
            return json_scan_fail(s, "the text ends inside a string");
        }
        char c = s->p[s->at];
        if (c != '"' && c != '\\') {
            return json_scan_fail(s, "a control character stands in a string");
        }
        if (c == '"' && !copied) {
            *out = (Str){s->p + from, s->at - from};
            s->at++;
            return true;
        }
        if (!copied) {
            text_clear(scratch);
            copied = true;
        }
        if (s->at > from && !text_add(scratch, s->p + from, s->at - from)) {
            return json_scan_fail(s, "a string is too long");
        }
        s->at++;
        if (c == '"') {
            *out = text_str(scratch);
            return true;
        }
        if (!escape(s, scratch)) {
            return false;
        }
        from = s->at;
    }
}

static bool is_digit(const JsonScan *s)
{
    return s->at < s->n && s->p[s->at] >= '0' && s->p[s->at] <= '9';
}

static bool skip_number(JsonScan *s)
{
    if (s->p[s->at] == '-') {
        s->at++;
    }
    if (!is_digit(s)) {
        return json_scan_fail(s, "a value was expected");
    }
    if (s->p[s->at] == '0') {
        s->at++;
        if (is_digit(s)) {
            return json_scan_fail(s, "a number begins with 0");
        }
    }
    while (is_digit(s)) {
        s->at++;
    }
    if (s->at < s->n && s->p[s->at] == '.') {
        s->at++;
        if (!is_digit(s)) {
            return json_scan_fail(s, "digits are missing behind the decimal point");
        }
        while (is_digit(s)) {
            s->at++;
        }
    }
    if (s->at < s->n && (s->p[s->at] == 'e' || s->p[s->at] == 'E')) {
        s->at++;
        if (s->at < s->n && (s->p[s->at] == '+' || s->p[s->at] == '-')) {
            s->at++;
        }
        if (!is_digit(s)) {
            return json_scan_fail(s, "digits are missing in the exponent");
        }
        while (is_digit(s)) {
            s->at++;
        }
    }
    return true;
}

bool json_scan_u64(JsonScan *s, uint64_t *out)
{
    char c = json_scan_peek(s);
    if (s->error != NULL || c < '0' || c > '9') {
        return json_scan_fail(s, "an unsigned integer was expected");
    }
    size_t from = s->at;
    if (!skip_number(s)) {
        return false;
    }
    uint64_t v = 0;
    for (size_t i = from; i < s->at; i++) {
        if (s->p[i] < '0' || s->p[i] > '9') {
            return json_scan_fail(s, "an unsigned integer was expected, not a decimal number");
        }
        uint64_t digit = (uint64_t)(s->p[i] - '0');
        if (v > (UINT64_MAX - digit) / 10) {
            return json_scan_fail(s, "an integer over 2^64-1");
        }
        v = v * 10 + digit;
    }
    *out = v;
    return true;
}

static bool word(JsonScan *s, const char *text)
{
    size_t n = strlen(text);
    (void)json_scan_peek(s);
    if (s->error != NULL || s->n - s->at < n || memcmp(s->p + s->at, text, n) != 0) {
        return json_scan_fail(s, "a value was expected");
    }
    s->at += n;
    return true;
}

bool json_scan_bool(JsonScan *s, bool *out)
{
    *out = json_scan_peek(s) == 't';
    return word(s, *out ? "true" : "false");
}

bool json_scan_null(JsonScan *s)
{
    return word(s, "null");
}

/* Skips a string without unescaping it into memory, with every check. */
static bool skip_string(JsonScan *s)
{
    Text small;
    char c;
    text_init(&small, 64);
    s->at++;
    bool good = true;
    while (good) {
        if (s->at >= s->n) {
            good = json_scan_fail(s, "the text ends inside a string");
            break;
        }
        c = s->p[s->at++];
        if (c == '"') {
            break;
        }
        if (c == '\\') {
            text_clear(&small);
            good = escape(s, &small);
        } else if ((unsigned char)c < 0x20) {
            good = json_scan_fail(s, "a control character stands in a string");
        }
    }
    text_free(&small);
    return good;
}

bool json_scan_skip(JsonScan *s)
{
    int floor = s->depth;
    bool is_object[JSON_SCAN_DEPTH_MAX + 1];
    bool due = true; /* a value is due at this place */
    Str key;
    Text none;
    text_init(&none, 1 << 20);
    while (s->error == NULL && (due || s->depth > floor)) {
        if (!due) {
            int inside = s->depth;
            due = is_object[s->depth] ? json_scan_key(s, &none, &key) : json_scan_item(s);
            if (!due && s->depth == inside) {
                break;
            }
            continue;
        }
        char c = json_scan_peek(s);
        due = false;
        if (c == '{' || c == '[') {
            if (c == '{' ? json_scan_object(s) : json_scan_array(s)) {
                is_object[s->depth] = c == '{';
            }
        } else if (c == '"') {
            (void)skip_string(s);
        } else if (c == 't' || c == 'f' || c == 'n') {
            (void)word(s, c == 't' ? "true" : c == 'f' ? "false" : "null");
        } else if (c == 0 && s->at >= s->n) {
            json_scan_fail(s, "the text ends too early");
        } else if (s->error == NULL) {
            (void)skip_number(s);
        }
    }
    text_free(&none);
    return s->error == NULL;
}

bool json_scan_raw(JsonScan *s, Str *out)
{
    (void)json_scan_peek(s);
    size_t from = s->at;
    if (!json_scan_skip(s)) {
        return false;
    }
    *out = (Str){s->p + from, s->at - from};
    return true;
}

bool json_scan_end(JsonScan *s)
{
    if (s->error == NULL && json_scan_peek(s) == 0 && s->at >= s->n) {
        return true;
    }
    return json_scan_fail(s, "bytes follow behind the end of the value");
}
