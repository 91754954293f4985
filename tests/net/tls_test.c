/* A certificate that nobody vouches for, or that is another host's: the call ends by name and no
 * byte of a reply is taken. One of an authority of SSL_CERT_FILE and for the right host serves.
 * Skipped (77) where the openssl program is missing. */
#include "core/net/http_client.h"
#include "core/base/clock.h"
#include "tests/harness.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/rolltop-tls-XXXXXX";
static HttpEnd end;
static int status, ends;
static size_t bytes;

static void on_done(HttpCall *call, const HttpResult *result, void *user)
{
    (void)call;
    (void)user;
    ends++;
    end = result->end;
    status = result->status;
    bytes = result->body.n;
}

static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t n = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, n) == 0);
    CHECK_I64(getsockname(fd, (struct sockaddr *)&address, &n), 0);
    close(fd);
    return ntohs(address.sin_port);
}

static pid_t serve(int port, const char *key, const char *cert)
{
    char accept[32];
    (void)snprintf(accept, sizeof accept, "127.0.0.1:%d", port);
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        if (chdir(folder) != 0 || !freopen("/dev/null", "w", stdout)
            || !freopen("/dev/null", "w", stderr)) {
            _exit(1);
        }
        execlp("openssl", "openssl", "s_server", "-accept", accept, "-key", key, "-cert", cert,
               "-www", (char *)NULL);
        _exit(1);
    }
    return pid;
}

/* Calls until the server listens; what the last call came to is in `end`, `status`, `bytes`. */
static void call(const char *key, const char *cert)
{
    int port = free_port();
    pid_t pid = serve(port, key, cert);
    uv_loop_t loop;
    HttpClient *client = NULL;
    char url[64];
    uv_loop_init(&loop);
    CHECK_I64(http_client_new(&loop, NULL, &client, NULL), ERR_OK);
    (void)snprintf(url, sizeof url, "https://127.0.0.1:%d/", port);
    HttpRequestSpec spec = {.method = "GET", .url = url, .total_ms = 20000, .silence_ms = -1,
                            .on_done = on_done};
    int64_t from = clock_mono_us();
    do {
        int before = ends;
        CHECK_I64(http_start(client, &spec, NULL, NULL), ERR_OK);
        while (ends == before) {
            uv_run(&loop, UV_RUN_ONCE);
        }
        clock_sleep_us(20000);
        if (waitpid(pid, NULL, WNOHANG) == pid) { /* somebody else took the port meanwhile */
            port = free_port();
            pid = serve(port, key, cert);
            (void)snprintf(url, sizeof url, "https://127.0.0.1:%d/", port);
        }
    } while (end == HTTP_END_REFUSED && clock_mono_us() - from < 60000000);
    http_client_free(client);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(uv_loop_close(&loop), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void an_unknown_certificate_is_refused(void)
{
    call("key.pem", "cert.pem");
    CHECK_STR(http_end_name(end), http_end_name(HTTP_END_TLS));
    CHECK_I64(status, 0);
    CHECK_I64(bytes, 0);
}

static void a_trusted_certificate_of_another_host_is_refused(void)
{
    call("host.key", "other.pem");
    CHECK_STR(http_end_name(end), http_end_name(HTTP_END_TLS));
    CHECK_I64(status, 0);
    CHECK_I64(bytes, 0);
}

static void a_trusted_certificate_of_this_host_serves(void)
{
    call("host.key", "host.pem");
    CHECK_STR(http_end_name(end), http_end_name(HTTP_END_OK));
    CHECK_I64(status, 200);
    CHECK(bytes > 0);
}

static void a_file_that_cannot_be_read_is_named(void)
{
    HttpClient *client = NULL;
    Fault fault = {0};
    uv_loop_t loop;
    uv_loop_init(&loop);
    CHECK_I64(setenv("SSL_CERT_FILE", "/nowhere/authorities.pem", 1), 0);
    CHECK(http_client_new(&loop, NULL, &client, &fault) != ERR_OK);
    CHECK(client == NULL && strstr(fault.sentence, "SSL_CERT_FILE") != NULL
          && strstr(fault.sentence, "/nowhere/authorities.pem") != NULL);
    CHECK_I64(uv_loop_close(&loop), 0);
}

/* An authority, and two certificates from it: for this host and for another one. */
static void make_certificates(void)
{
    char command[1600];
    (void)snprintf(
        command, sizeof command,
        "cd %s && { openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 "
        "-keyout key.pem -out cert.pem && "
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority "
        "-keyout ca.key -out ca.pem && "
        "openssl req -newkey rsa:2048 -nodes -subj /CN=engine -keyout host.key -out host.csr && "
        "echo subjectAltName=IP:127.0.0.1 >host.ext && "
        "echo subjectAltName=DNS:engine.invalid,IP:127.0.0.2 >other.ext && "
        "for n in host other; do openssl x509 -req -in host.csr -CA ca.pem -CAkey ca.key "
        "-CAcreateserial -days 2 -extfile $n.ext -out $n.pem || exit 1; done; } >log 2>&1",
        folder);
    CHECK_I64(system(command), 0);
}

int main(void)
{
    char command[512];
    if (system("command -v openssl >/dev/null 2>&1") != 0) {
        puts("skipped: no openssl program to serve a certificate with");
        return 77;
    }
    CHECK(mkdtemp(folder) != NULL);
    make_certificates();
    RUN(an_unknown_certificate_is_refused);
    (void)snprintf(command, sizeof command, "%s/ca.pem", folder);
    CHECK_I64(setenv("SSL_CERT_FILE", command, 1), 0);
    RUN(a_trusted_certificate_of_another_host_is_refused);
    RUN(a_trusted_certificate_of_this_host_serves);
    RUN(a_file_that_cannot_be_read_is_named);
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_I64(system(command), 0);
    return test_end();
}
