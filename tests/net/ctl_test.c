#include "core/net/ctl.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "tests/harness.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { WAIT_MS = 60000 };

static char socket_path[128];

typedef struct Late {
    uv_timer_t timer;
    CtlRequest *request;
    int64_t number;
} Late;

typedef struct Served {
    int requests;
    CtlServer *server;
    uv_async_t stop;
} Served;

static void answer(CtlRequest *request, int64_t number)
{
    Text text;
    text_init(&text, 1024);
    text_addf(&text, "{\"ok\":true,\n\"number\":%lld}", (long long)number);
    ctl_reply(request, &text);
    text_free(&text);
}

static void late_closed(uv_handle_t *handle)
{
    free(handle->data);
}

static void late_fire(uv_timer_t *timer)
{
    Late *late = timer->data;
    answer(late->request, late->number);
    uv_close((uv_handle_t *)timer, late_closed);
}

static void serve(CtlRequest *request, const cJSON *body, const CtlPeer *peer, void *user)
{
    Served *served = user;
    served->requests++;
    CHECK_I64(peer->uid, getuid());
    CHECK(peer->pid > 0 && peer->user[0] != '\0');
    int64_t number = json_i64(body, "number", -1);
    if (json_bool(body, "late", false)) {
        Late *late = xcalloc(1, sizeof *late);
        late->request = request;
        late->number = number;
        uv_timer_init(served->stop.loop, &late->timer);
        late->timer.data = late;
        uv_timer_start(&late->timer, late_fire, 30, 0);
    } else {
        answer(request, number);
    }
}

static void on_stop(uv_async_t *async)
{
    Served *served = async->data;
    ctl_server_free(served->server);
    uv_close((uv_handle_t *)async, NULL);
}

static void *loop_thread(void *arg)
{
    uv_run(arg, UV_RUN_DEFAULT);
    return NULL;
}

typedef struct Fixture {
    uv_loop_t loop;
    Served served;
    pthread_t thread;
} Fixture;

static void fixture_start(Fixture *f)
{
    memset(f, 0, sizeof *f);
    uv_loop_init(&f->loop);
    uv_async_init(&f->loop, &f->served.stop, on_stop);
    f->served.stop.data = &f->served;
    Fault fault = {0};
    Err err = ctl_server_new(&f->loop, socket_path, serve, &f->served, &f->served.server, &fault);
    CHECK_I64(err, ERR_OK);
    pthread_create(&f->thread, NULL, loop_thread, &f->loop);
}

static void fixture_stop(Fixture *f)
{
    uv_async_send(&f->served.stop);
    pthread_join(f->thread, NULL);
    CHECK_I64(uv_loop_close(&f->loop), 0);
    CHECK(access(socket_path, F_OK) != 0);
}

static int64_t call_number(CtlClient *client, const char *json)
{
    cJSON *reply = NULL;
    Fault fault = {0};
    Err err = ctl_call(client, str_from(json), WAIT_MS, &reply, &fault);
    CHECK_I64(err, ERR_OK);
    int64_t number = json_i64(reply, "number", -2);
    cJSON_Delete(reply);
    return number;
}

static void test_call(void)
{
    Fixture f;
    fixture_start(&f);
    struct stat info;
    CHECK(stat(socket_path, &info) == 0 && (info.st_mode & 0777) == 0600);
    CtlClient *client = NULL;
    CHECK_I64(ctl_connect(socket_path, WAIT_MS, &client, NULL), ERR_OK);
    CHECK_I64(call_number(client, "{\"number\":7}"), 7);
    CHECK_I64(call_number(client, "{\"number\":8,\"late\":true}"), 8);
    cJSON *reply = NULL;
    CHECK_I64(ctl_call(client, STR("[1]"), WAIT_MS, &reply, NULL), ERR_OK);
    CHECK(!json_bool(reply, "ok", true));
    cJSON_Delete(reply);
    reply = NULL;
    CHECK_I64(ctl_call(client, STR("{nonsense"), WAIT_MS, &reply, NULL), ERR_OK);
    CHECK(!json_bool(reply, "ok", true) && strlen(json_string(reply, "message", "")) > 5);
    cJSON_Delete(reply);
    ctl_client_free(client);
    fixture_stop(&f);
}

/* Answers come in the order of the requests, however late the first one is. */
static void test_order(void)
{
    Fixture f;
    fixture_start(&f);
    CtlClient *client = NULL;
    CHECK_I64(ctl_connect(socket_path, WAIT_MS, &client, NULL), ERR_OK);
    enum { COUNT = 150 }; /* more than the server holds unanswered */
    for (int i = 0; i < COUNT; i++) {
        char line[64];
        (void)str_format(line, sizeof line, "{\"number\":%d%s}", i,
                         i % 40 == 0 ? ",\"late\":true" : "");
        CHECK_I64(ctl_send(client, str_from(line), NULL), ERR_OK);
    }
    int64_t until = clock_mono_us() + WAIT_MS * INT64_C(1000);
    for (int i = 0; i < COUNT && clock_mono_us() < until;) {
        cJSON *reply = NULL;
        Err err = ctl_poll_reply(client, &reply, NULL);
        if (err == ERR_TIMEOUT) {
            struct pollfd wait = {.fd = ctl_client_fd(client), .events = POLLIN};
            poll(&wait, 1, 100);
            continue;
        }
        CHECK_I64(err, ERR_OK);
        CHECK_I64(json_i64(reply, "number", -1), i);
        cJSON_Delete(reply);
        i++;
        if (err != ERR_OK) {
            break;
        }
    }
    ctl_client_free(client);
    fixture_stop(&f);
    CHECK_I64(f.served.requests, COUNT);
}

/* A client that goes away before its answer, and one that sends an endless line. */
static void test_rude(void)
{
    Fixture f;
    fixture_start(&f);
    CtlClient *client = NULL;
    CHECK_I64(ctl_connect(socket_path, WAIT_MS, &client, NULL), ERR_OK);
    CHECK_I64(ctl_send(client, STR("{\"number\":1,\"late\":true}"), NULL), ERR_OK);
    ctl_client_free(client);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, socket_path, strlen(socket_path));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK_I64(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    char *flood = xcalloc(1, CTL_LINE_MAX + 10);
    memset(flood, 'x', CTL_LINE_MAX + 10);
    size_t sent = 0;
    while (sent < CTL_LINE_MAX) {
        ssize_t n = send(fd, flood, CTL_LINE_MAX - sent, MSG_NOSIGNAL);
        if (n <= 0) {
            break;
        }
        sent += (size_t)n;
    }
    char reply[256] = {0};
    ssize_t got = recv(fd, reply, sizeof reply - 1, 0);
    CHECK(got > 0 && strstr(reply, "longer than 1 MiB"));
    got = recv(fd, reply, sizeof reply - 1, 0);
    CHECK(got <= 0);
    close(fd);
    free(flood);
    CHECK_I64(ctl_connect(socket_path, WAIT_MS, &client, NULL), ERR_OK);
    CHECK_I64(call_number(client, "{\"number\":3}"), 3);
    ctl_client_free(client);
    fixture_stop(&f);
}

static void test_path(void)
{
    Fixture f;
    fixture_start(&f);
    uv_loop_t loop;
    uv_loop_init(&loop);
    CtlServer *second = NULL;
    Fault fault = {0};
    CHECK_I64(ctl_server_new(&loop, socket_path, serve, NULL, &second, &fault), ERR_EXISTS);
    CHECK(strstr(fault.sentence, socket_path) != NULL);
    fixture_stop(&f);
    /* A socket file that nobody listens on is replaced. */
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, socket_path, strlen(socket_path));
    CHECK_I64(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    CHECK(access(socket_path, F_OK) == 0);
    fixture_start(&f);
    fixture_stop(&f);
    /* A plain file is not ours to remove. */
    FILE *file = fopen(socket_path, "w");
    fclose(file);
    fault_clear(&fault);
    CHECK_I64(ctl_server_new(&loop, socket_path, serve, NULL, &second, &fault), ERR_EXISTS);
    unlink(socket_path);
    CtlClient *client = NULL;
    CHECK_I64(ctl_connect(socket_path, 100, &client, NULL), ERR_NOT_FOUND);
    CHECK_I64(uv_loop_close(&loop), 0);
}

/* Somebody who looks for dead runs while one starts leaves its socket alone. */
static _Atomic bool sweeping;

static void *sweep(void *arg)
{
    while (sweeping) {
        ctl_sweep(socket_path);
        clock_sleep_us(300); /* a call to a living server each time: 64 at once are refused */
    }
    return arg;
}

static void test_sweep(void)
{
    pthread_t threads[2];
    sweeping = true;
    for (int i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, sweep, NULL);
    }
    for (int i = 0; i < 300; i++) {
        Fixture f;
        fixture_start(&f);
        CtlClient *client = NULL;
        CHECK_I64(ctl_connect(socket_path, WAIT_MS, &client, NULL), ERR_OK);
        CHECK_I64(call_number(client, "{\"number\":5}"), 5);
        ctl_client_free(client);
        fixture_stop(&f);
    }
    sweeping = false;
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    /* Bound, not listening: being made as long as the folder is held, left behind afterwards. */
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, socket_path, strlen(socket_path));
    CHECK_I64(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    char folder[sizeof socket_path];
    (void)str_format(folder, sizeof folder, "%s", socket_path);
    *strrchr(folder, '/') = '\0';
    int held = open(folder, O_RDONLY | O_DIRECTORY);
    CHECK_I64(flock(held, LOCK_EX), 0);
    ctl_sweep(socket_path);
    CHECK(access(socket_path, F_OK) == 0);
    close(held);
    ctl_sweep(socket_path);
    CHECK(access(socket_path, F_OK) != 0);
    close(fd);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as the binary does */
    char folder_path[] = "/tmp/rolltop-ctl-XXXXXX"; /* of its own: the sockets' folder is locked */
    CHECK(mkdtemp(folder_path));
    (void)str_format(socket_path, sizeof socket_path, "%s/a.sock", folder_path);
    RUN(test_call);
    RUN(test_order);
    RUN(test_rude);
    RUN(test_path);
    RUN(test_sweep);
    rmdir(folder_path);
    return test_end();
}
