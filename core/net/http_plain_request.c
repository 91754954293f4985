/* What goes out of a plain call: whether a request may go this way at all, and its bytes. */
#include "core/net/http_plain.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

enum { PLAIN_URL_MAX = 4096 };

static bool proxy_is_set(void)
{
    static const char *const names[] = {"http_proxy", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = getenv(names[i]);
        if (value && value[0]) {
            return true;
        }
    }
    return false;
}

static bool parse_port(const char *p, const char *end, uint16_t *port)
{
    unsigned value = 0;
    if (p == end || end - p > 5) {
        return false;
    }
    for (; p < end; p++) {
        if (*p < '0' || *p > '9') {
            return false;
        }
        value = value * 10 + (unsigned)(*p - '0');
    }
    *port = (uint16_t)value;
    return value > 0 && value <= 65535;
}

static bool parse_target(const char *url, HttpPlainTarget *target)
{
    if (strncmp(url, "http://", 7) != 0) {
        return false;
    }
    const char *host = url + 7;
    const char *path = host + strcspn(host, "/?#");
    for (const char *p = path; *p; p++) { /* what curl would encode, refuse or not send */
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f || *p == '#'
            || p - url > PLAIN_URL_MAX) {
            return false;
        }
    }
    const char *colon = memchr(host, ':', (size_t)(path - host));
    const char *end = colon ? colon : path;
    char digits[INET_ADDRSTRLEN];
    uint16_t port = 80;
    if (*path != '/' || (size_t)(end - host) >= sizeof digits || end == host
        || (colon && !parse_port(colon + 1, path, &port))) {
        return false;
    }
    memcpy(digits, host, (size_t)(end - host));
    digits[end - host] = '\0';
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, digits, &address.sin_addr) != 1) {
        return false;
    }
    *target = (HttpPlainTarget){.address = address, .host = {host, (size_t)(path - host)},
                                .path = path};
    return strncmp(digits, "127.", 4) == 0 || !proxy_is_set();
}

bool http_plain_takes(const HttpRequestSpec *spec, HttpPlainTarget *target)
{
    return strcmp(spec->method, "HEAD") != 0 && parse_target(spec->url, target);
}

static bool is_removed(const char *line)
{
    size_t n = strlen(line);
    return n > 0 && line[n - 1] == ':'; /* how curl is told to leave a header out */
}

void http_plain_request(const HttpCall *call, const HttpPlainTarget *target, Text *out)
{
    text_init(out, SIZE_MAX / 4);
    text_reserve(out, call->spec.body.n + 512);
    text_add_c(out, call->spec.method);
    text_add_char(out, ' ');
    text_add_c(out, target->path);
    text_add_c(out, " HTTP/1.1\r\nHost: ");
    text_add_str(out, target->host);
    text_add_c(out, "\r\nUser-Agent: rolltop/" ROLLTOP_VERSION "\r\nAccept: */*\r\n");
    for (const struct curl_slist *line = call->header_lines; line; line = line->next) {
        if (!is_removed(line->data)) {
            text_add_c(out, line->data);
            text_add_c(out, "\r\n");
        }
    }
    if (call->spec.body.n > 0 || strcmp(call->spec.method, "GET") != 0) {
        text_addf(out, "Content-Length: %zu\r\n", call->spec.body.n);
    }
    text_add_c(out, "\r\n");
    text_add_str(out, call->spec.body);
}
