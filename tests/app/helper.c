/* What the scripts of tests/app need and no shell has.
 *
 *   helper dns ZONE    a DNS server on 127.0.0.1, prints its port; ZONE is read at each question:
 *                      lines "A NAME ADDRESS", "AAAA NAME ADDRESS", "SRV NAME PORT TARGET", or
 *                      "FAIL" for SERVFAIL
 *   helper post HOST:PORT PATH BODY, helper get HOST:PORT PATH
 *                      one request, of JSON; prints the reply, status 1 unless it is 2xx
 *   helper sql FILE STATEMENTS
 *                      changes a log that nobody writes: what damage or time would do to it
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PACKET = 4096, LINE = 512, T_A = 1, T_AAAA = 28, T_SRV = 33 };

/* "a.b" behind `out` as labels; its length. */
static size_t put_name(unsigned char *out, const char *name)
{
    size_t n = 0;
    while (*name) {
        size_t label = strcspn(name, ".");
        out[n++] = (unsigned char)label;
        memcpy(out + n, name, label);
        n += label;
        name += label + (name[label] == '.');
    }
    out[n++] = 0;
    return n;
}

/* The record data of one zone line, when it is of this type and name; 0: it is not. */
static size_t record_of(const char *line, int type, const char *name, unsigned char *data)
{
    char kind[8], owner[256], value[256], target[256];
    if (sscanf(line, "%7s %255s %255s %255s", kind, owner, value, target) < 3 ||
        strcasecmp(owner, name) != 0) {
        return 0;
    }
    if (type == T_A && strcmp(kind, "A") == 0) {
        return inet_pton(AF_INET, value, data) == 1 ? 4 : 0;
    }
    if (type == T_AAAA && strcmp(kind, "AAAA") == 0) {
        return inet_pton(AF_INET6, value, data) == 1 ? 16 : 0;
    }
    if (type == T_SRV && strcmp(kind, "SRV") == 0) {
        int port = atoi(value);
        memset(data, 0, 4);
        data[4] = (unsigned char)(port >> 8);
        data[5] = (unsigned char)port;
        return 6 + put_name(data + 6, target);
    }
    return 0;
}

static bool has_name(const char *line, const char *name)
{
    char owner[256];
    return sscanf(line, "%*7s %255s", owner) == 1 && strcasecmp(owner, name) == 0;
}

/* Question in `in`, reply in `out`; its length, 0: no question. */
static size_t answer(const char *zone, const unsigned char *in, size_t n, unsigned char *out)
{
    char name[256] = "", line[LINE];
    size_t end = 12, at = 0;
    bool known = false;
    while (end < n && in[end] && at + in[end] + 1 < sizeof name) {
        memcpy(name + at, in + end + 1, in[end]);
        at += in[end];
        name[at++] = '.';
        end += (size_t)in[end] + 1;
    }
    if (n < end + 5 || at == 0) {
        return 0;
    }
    name[at - 1] = '\0';
    const int type = in[end + 1] << 8 | in[end + 2];
    size_t size = end + 5;
    memcpy(out, in, size);
    out[2] = 0x85, out[3] = 0x80;
    memset(out + 6, 0, 6);
    FILE *file = fopen(zone, "r");
    while (file && fgets(line, sizeof line, file)) {
        unsigned char data[300];
        size_t length = record_of(line, type, name, data);
        known = known || has_name(line, name);
        if (strncmp(line, "FAIL", 4) == 0) {
            out[3] = 0x82;
            known = true;
        } else if (length > 0 && size + length + 12 < PACKET) {
            const unsigned char head[12] = {0xc0, 12, 0, (unsigned char)type, 0, 1, 0, 0, 0, 1, 0,
                                            (unsigned char)length};
            memcpy(out + size, head, sizeof head);
            memcpy(out + size + sizeof head, data, length);
            size += sizeof head + length;
            out[7]++;
        }
    }
    if (file) {
        fclose(file);
    }
    out[3] = known ? out[3] : 0x83; /* NXDOMAIN */
    return size;
}

static int dns(const char *zone)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, n) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &n) != 0) {
        perror("dns");
        return 1;
    }
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        unsigned char in[PACKET], out[PACKET];
        n = sizeof address;
        ssize_t got = recvfrom(fd, in, sizeof in, 0, (struct sockaddr *)&address, &n);
        size_t size = got > 12 ? answer(zone, in, (size_t)got, out) : 0;
        if (size > 0) {
            (void)sendto(fd, out, size, 0, (struct sockaddr *)&address, n);
        }
    }
}

static int ask(const char *method, const char *where, const char *path, const char *body)
{
    char host[64], request[2048], reply[8192] = "";
    int port = 0;
    size_t n = 0;
    if (sscanf(where, "%63[0-9.]:%d", host, &port) != 2) {
        fprintf(stderr, "%s is not ADDRESS:PORT\n", where);
        return 2;
    }
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1 ||
        connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        perror(where);
        return 1;
    }
    int size = snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Type: "
                        "application/json\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                        method, path, where, strlen(body), body);
    ssize_t got = write(fd, request, (size_t)size);
    while (got > 0 && n + 1 < sizeof reply) {
        got = read(fd, reply + n, sizeof reply - 1 - n);
        n += got > 0 ? (size_t)got : 0;
    }
    close(fd);
    puts(reply);
    return strncmp(reply, "HTTP/1.1 2", 10) == 0 ? 0 : 1;
}

static int sql(const char *path, const char *statements)
{
    sqlite3 *db = NULL;
    char *why = NULL;
    int rc = sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL);
    rc = rc == SQLITE_OK ? sqlite3_exec(db, statements, NULL, NULL, &why) : rc;
    if (rc != SQLITE_OK) {
        fprintf(stderr, "%s: %s\n", path, why ? why : sqlite3_errstr(rc));
    }
    sqlite3_free(why);
    sqlite3_close(db);
    return rc != SQLITE_OK;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 3 && strcmp(argv[1], "dns") == 0) {
        return dns(argv[2]);
    }
    if (argc == 5 && strcmp(argv[1], "post") == 0) {
        return ask("POST", argv[2], argv[3], argv[4]);
    }
    if (argc == 4 && strcmp(argv[1], "get") == 0) {
        return ask("GET", argv[2], argv[3], "");
    }
    if (argc == 4 && strcmp(argv[1], "sql") == 0) {
        return sql(argv[2], argv[3]);
    }
    fprintf(stderr, "usage: helper dns ZONE | helper post ADDRESS:PORT PATH BODY | "
                    "helper get ADDRESS:PORT PATH | helper sql FILE STATEMENTS\n");
    return 2;
}
