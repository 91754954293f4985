/* Sources at the edge, against what they read: a file that changes, a DNS server of the test's own
 * (A, AAAA, SRV, nothing, failure), and bodies of a frontend's /health. */
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/fleet/resolve.h"
#include "core/fleet/sources.h"
#include "tests/harness.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- a DNS server ------------------------------------------------------------------------- */

static int dns_fd;
static char dns_address[64];

static size_t put(unsigned char *out, size_t at, const void *bytes, size_t n)
{
    memcpy(out + at, bytes, n);
    return at + n;
}

/* One answer record about the question's name. */
static size_t record(unsigned char *out, size_t at, int type, const void *data, size_t n)
{
    unsigned char head[12] = {0xc0, 12, 0, (unsigned char)type, 0, 1, 0, 0, 0, 5, 0,
                              (unsigned char)n};
    out[7]++;
    return put(out, put(out, at, head, sizeof head), data, n);
}

static void *dns_serve(void *arg)
{
    (void)arg;
    unsigned char in[512], out[1024];
    struct sockaddr_in from;
    for (;;) {
        socklen_t size = sizeof from;
        ssize_t n = recvfrom(dns_fd, in, sizeof in, 0, (struct sockaddr *)&from, &size);
        if (n < 17) {
            return NULL;
        }
        size_t end = 12;
        while (in[end]) {
            end += (size_t)in[end] + 1;
        }
        int type = in[end + 2];
        end += 5;
        const char *name = (const char *)in + 13; /* the first label, behind its length */
        size_t at = put(out, 0, in, end);
        out[2] = 0x85, out[3] = 0x80, out[6] = out[7] = out[8] = out[9] = out[10] = out[11] = 0;
        if (strncmp(name, "gone", 4) == 0) {
            out[3] = 0x83; /* NXDOMAIN */
        } else if (strncmp(name, "broken", 6) == 0) {
            out[3] = 0x82; /* SERVFAIL */
        } else if (type == 1 && strncmp(name, "eng", 3) == 0) {
            at = record(out, at, 1, "\x0a\x00\x00\x08", 4);
            at = record(out, at, 1, "\x0a\x00\x00\x07", 4);
            at = record(out, at, 1, "\x0a\x00\x00\x07", 4);
        } else if (type == 28 && strncmp(name, "eng", 3) == 0) {
            at = record(out, at, 28, "\xfd\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01", 16);
        } else if (type == 33) { /* port 30000 (0x7530) on "a.x", and a hostile name */
            at = record(out, at, 33, "\0\0\0\0\x75\x30\1a\1x\0", 11);
            at = record(out, at, 33, "\0\0\0\0\x75\x30\3a\"b\1x\0", 13);
        }
        (void)sendto(dns_fd, out, at, 0, (struct sockaddr *)&from, size);
    }
}

static void dns_start(pthread_t *thread)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    dns_fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK_I64(bind(dns_fd, (struct sockaddr *)&address, n), 0);
    CHECK_I64(getsockname(dns_fd, (struct sockaddr *)&address, &n), 0);
    snprintf(dns_address, sizeof dns_address, "127.0.0.1:%d", ntohs(address.sin_port));
    CHECK_I64(pthread_create(thread, NULL, dns_serve, NULL), 0);
}

static char found[8][DISCOVER_ADDRESS];
static size_t count;

static void names_are_resolved(void)
{
    Fault fault = {0};
    CHECK_I64(resolve_addresses("eng.ns.svc:30000", dns_address, found, 8, &count, &fault), ERR_OK);
    CHECK_I64(count, 3); /* sorted, each once */
    CHECK_STR(found[0], "10.0.0.7:30000");
    CHECK_STR(found[1], "10.0.0.8:30000");
    CHECK_STR(found[2], "[fd00::1]:30000");
    CHECK_I64(resolve_addresses("_http._tcp.eng.svc", dns_address, found, 8, &count, &fault),
              ERR_OK);
    CHECK_I64(count, 1);
    CHECK_STR(found[0], "a.x:30000");
    CHECK_I64(resolve_addresses("gone.svc:1", dns_address, found, 8, &count, &fault), ERR_OK);
    CHECK_I64(count, 0); /* a Service without pods says so: that is an answer */
    CHECK_I64(resolve_addresses("broken.svc:1", dns_address, found, 8, &count, &fault), ERR_NET);
    struct addrinfo *info = NULL;
    if (getaddrinfo("localhost", NULL, NULL, &info) == 0) { /* a bare root has no /etc/hosts */
        freeaddrinfo(info);
        CHECK_I64(resolve_addresses("localhost:7", NULL, found, 8, &count, &fault), ERR_OK);
        CHECK(count >= 1);
    }
}

static void words_are_checked(void)
{
    CHECK_I64(sources_check_dns("engines.ns.svc:30000", NULL), ERR_OK);
    CHECK_I64(sources_check_dns("_http._tcp.engines.ns.svc", NULL), ERR_OK);
    CHECK_I64(sources_check_dns("engines.ns.svc", NULL), ERR_ARG);
    CHECK_I64(sources_check_dns("http://engines:1", NULL), ERR_ARG);
    CHECK_I64(sources_check_server("10.0.0.2", NULL), ERR_OK);
    CHECK_I64(sources_check_server("10.0.0.2:5353", NULL), ERR_OK);
    CHECK_I64(sources_check_server("dns.local", NULL), ERR_ARG);
    CHECK_I64(sources_check_server("10.0.0.2:x", NULL), ERR_ARG);
}

/* As Dynamo 1.6.1 says it: several objects a worker, ids beyond 2^53. */
static void instances_are_read(void)
{
    static const char body[] =
        "{\"status\":\"healthy\",\"instances\":["
        "{\"component\":\"backend\",\"endpoint\":\"generate\",\"instance_id\":7587890123456789012,"
        "\"transport\":{\"tcp\":\"10.1.0.4:39283/694d/dynamo/backend/generate\"}},"
        "{\"component\":\"backend\",\"endpoint\":\"worker_kv_query\",\"instance_id\":1,"
        "\"transport\":{\"tcp\":\"10.1.0.9:1/x\"}},"
        "{\"component\":\"prefill\",\"endpoint\":\"generate\",\"instance_id\":2,"
        "\"transport\":{\"tcp\":\"10.1.0.9:1/x\"}},"
        "{\"component\":\"backend\",\"endpoint\":\"generate\",\"instance_id\":3,"
        "\"transport\":{\"tcp\":\"10.1.0.5:40000/x\"}}]}";
    static const char blind[] = "{\"instances\":[{\"component\":\"backend\",\"endpoint\":"
                                "\"generate\",\"transport\":{\"nats_tcp\":\"subject\"}}]}";
    CHECK_I64(sources_read_instances(STR(body), 30000, found, 8, &count, NULL), ERR_OK);
    CHECK_I64(count, 2);
    CHECK_STR(found[0], "10.1.0.4:30000");
    CHECK_STR(found[1], "10.1.0.5:30000");
    CHECK_I64(sources_read_instances(STR(body), 30000, found, count, &count, NULL), ERR_OK);
    CHECK_I64(sources_read_instances(STR(body), 30000, found, count - 1, &count, NULL), ERR_LIMIT);
    CHECK_I64(sources_read_instances(STR(body), SOURCES_OWN_PORT, found, 8, &count, NULL), ERR_OK);
    CHECK_STR(found[0], "10.1.0.4:39283");
    CHECK_I64(sources_read_instances(STR("{\"instances\":[]}"), 1, found, 8, &count, NULL), ERR_OK);
    CHECK_I64(count, 0);
    CHECK_I64(sources_read_instances(STR(blind), 1, found, 8, &count, NULL), ERR_UNSUPPORTED);
    CHECK_I64(sources_read_instances(STR("{\"status\":\"x\"}"), 1, found, 8, &count, NULL),
              ERR_FORMAT);
    CHECK_I64(sources_read_instances(STR("<html>"), 1, found, 8, &count, NULL), ERR_FORMAT);
}

/* ---- the watched file --------------------------------------------------------------------- */

static int looks, troubles, over;
static size_t listed;

static void on_look(DiscoverSource source, const char *const *addresses, size_t n, void *user)
{
    (void)addresses;
    (void)user;
    CHECK_I64(source, DISCOVER_FILE);
    looks++;
    listed = n;
}

static void on_trouble(DiscoverSource source, const char *words, void *user)
{
    (void)source;
    (void)user;
    troubles += words[0] != '\0';
    over += words[0] == '\0';
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void a_file_is_watched(void)
{
    static const char *const contents[] = {"a:1\n", "a:1\nb:2\n", "nonsense\n", "b:2\n"};
    static const size_t expected[] = {1, 2, 2, 1};
    char path[] = "/tmp/rolltop-sources-XXXXXX";
    uv_loop_t loop;
    uv_timer_t timer;
    Sources *sources = NULL;
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    uv_loop_init(&loop);
    uv_timer_init(&loop, &timer);
    SourcesConfig config = {.file = path};
    SourcesEvents events = {on_look, on_trouble, NULL};
    CHECK_I64(fs_write_atomic(path, contents[0], strlen(contents[0]), NULL), ERR_OK);
    CHECK_I64(sources_new(&loop, NULL, &config, &events, &sources, NULL), ERR_OK);
    for (size_t i = 0; i < sizeof contents / sizeof *contents; i++) {
        CHECK_I64(fs_write_atomic(path, contents[i], strlen(contents[i]), NULL), ERR_OK);
        int64_t until_us = clock_mono_us() + 60 * INT64_C(1000000);
        int before = looks;
        bool bad = contents[i][0] == 'n'; /* looked at twice, told of once */
        int64_t bad_until_us = clock_mono_us() + 2500000;
        while ((bad ? clock_mono_us() < bad_until_us || troubles == 0
                    : looks < before + 1 || listed != expected[i]) && clock_mono_us() < until_us) {
            uv_timer_start(&timer, on_tick, 50, 0);
            uv_run(&loop, UV_RUN_ONCE);
        }
        CHECK_I64(listed, expected[i]);
    }
    CHECK(looks >= 3);
    CHECK_I64(troubles, 1); /* told once, not at each look */
    CHECK_I64(over, 1);
    sources_free(sources);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(uv_loop_close(&loop), 0);
    unlink(path);
}

int main(void)
{
    pthread_t thread;
    dns_start(&thread);
    RUN(names_are_resolved);
    RUN(words_are_checked);
    RUN(instances_are_read);
    RUN(a_file_is_watched);
    shutdown(dns_fd, SHUT_RDWR);
    CHECK_I64(pthread_join(thread, NULL), 0);
    close(dns_fd);
    return test_end();
}
