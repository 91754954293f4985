/* A certificate that nobody vouches for: the call ends by name and no byte of a reply is taken.
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

static pid_t serve(int port)
{
    char accept[32];
    (void)snprintf(accept, sizeof accept, "127.0.0.1:%d", port);
    pid_t pid = fork();
    if (pid == 0) {
        if (chdir(folder) != 0 || !freopen("/dev/null", "w", stdout)
            || !freopen("/dev/null", "w", stderr)) {
            _exit(1);
        }
        execlp("openssl", "openssl", "s_server", "-accept", accept, "-key", "key.pem", "-cert",
               "cert.pem", "-www", (char *)NULL);
        _exit(1);
    }
    return pid;
}

static void an_unknown_certificate_is_refused(void)
{
    int port = free_port();
    pid_t pid = serve(port);
    uv_loop_t loop;
    HttpClient *client = NULL;
    char url[64];
    uv_loop_init(&loop);
    CHECK_I64(http_client_new(&loop, NULL, &client, NULL), ERR_OK);
    (void)snprintf(url, sizeof url, "https://127.0.0.1:%d/", port);
    HttpRequestSpec spec = {.method = "GET", .url = url, .total_ms = 5000, .silence_ms = -1,
                            .on_done = on_done};
    int64_t from = clock_mono_us();
    do { /* until the server listens */
        int before = ends;
        CHECK_I64(http_start(client, &spec, NULL, NULL), ERR_OK);
        while (ends == before) {
            uv_run(&loop, UV_RUN_ONCE);
        }
        clock_sleep_us(20000);
    } while (end == HTTP_END_REFUSED && clock_mono_us() - from < 20000000);
    CHECK_STR(http_end_name(end), http_end_name(HTTP_END_TLS));
    CHECK_I64(status, 0);
    CHECK_I64(bytes, 0);
    http_client_free(client);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK_I64(uv_loop_close(&loop), 0);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

int main(void)
{
    char command[512];
    if (system("command -v openssl >/dev/null 2>&1") != 0) {
        puts("skipped: no openssl program to serve a certificate with");
        return 77;
    }
    CHECK(mkdtemp(folder) != NULL);
    (void)snprintf(command, sizeof command,
                   "cd %s && openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 "
                   "-keyout key.pem -out cert.pem 2>/dev/null", folder);
    CHECK_I64(system(command), 0);
    RUN(an_unknown_certificate_is_refused);
    (void)snprintf(command, sizeof command, "rm -r %s", folder);
    CHECK_I64(system(command), 0);
    return test_end();
}
