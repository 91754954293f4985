/* The core's side of the trainer: one child, one request in flight. Nothing here waits; what the
 * child does or fails to do arrives as an event. */
#include "core/train/trainer.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/train/frame.h"
#include "core/train/trainer_wire.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { TRAINER_CHUNK = 65536, TRAINER_STALL_MS = 600000 };
/* Answers are small except scores: 4 bytes a token of a request. */
static const size_t TRAINER_ANSWER_MAX = (size_t)256 << 20;

typedef struct Request {
    const char *type, *answer;
    TrainerReplied on_done;
    void *user;
    int64_t id, sent_us;
} Request;

struct Trainer {
    uv_loop_t *loop;
    Child *child;
    TrainerEvents events;
    FrameReader reader;
    uv_timer_t stall;
    char chunk[TRAINER_CHUNK];
    Request request; /* type NULL: none */
    int64_t last_id;
    int pid;
    bool ready, dead, freed;
    char refusal[FAULT_TEXT_MAX]; /* why we ended it, told with on_exit */
    Err refused;
    TrainerMetric metrics[TRAINER_METRICS_MAX];
};

typedef struct Send { /* owns its bytes until libuv has written them */
    uv_write_t write;
    unsigned char prefix[FRAME_PREFIX];
    Text head;
    unsigned char *tail;
} Send;

static void on_stall_closed(uv_handle_t *handle)
{
    Trainer *trainer = handle->data;
    frame_reader_free(&trainer->reader);
    free(trainer);
}

static void on_sent(uv_write_t *write, int status)
{
    (void)status; /* a broken channel shows as the child's end */
    Send *send = (Send *)(void *)((char *)write - offsetof(Send, write));
    text_free(&send->head);
    free(send->tail);
    free(send);
}

static void answer(Trainer *trainer, TrainerReply *reply)
{
    Request request = trainer->request;
    trainer->request = (Request){0};
    uv_timer_stop(&trainer->stall);
    reply->took_us = clock_mono_us() - request.sent_us;
    if (request.on_done) {
        request.on_done(reply, request.user);
    }
}

static void answer_fault(Trainer *trainer, const Fault *fault)
{
    if (trainer->request.type) {
        TrainerReply reply = {.err = fault->code, .fault = *fault};
        answer(trainer, &reply);
    }
}

/* The child broke the protocol or stopped: the request is answered, the child ended. */
static void give_up(Trainer *trainer, const Fault *fault)
{
    snprintf(trainer->refusal, sizeof trainer->refusal, "%s", fault->sentence);
    trainer->refused = fault->code;
    answer_fault(trainer, fault);
    if (!trainer->freed && !trainer->dead) {
        child_kill(trainer->child, SIGKILL);
    }
}

static void on_stall(uv_timer_t *timer)
{
    Trainer *trainer = timer->data;
    Fault fault = {0};
    (void)fault_set(&fault, ERR_TIMEOUT, "the core starts it again",
                    "the trainer gave no sign for %d s while it was asked to %s",
                    TRAINER_STALL_MS / 1000,
                    trainer->request.type ? trainer->request.type : "load");
    give_up(trainer, &fault);
}

static void watch(Trainer *trainer)
{
    uv_update_time(trainer->loop);
    uv_timer_start(&trainer->stall, on_stall, TRAINER_STALL_MS, 0);
}

/* ---- answers ---- */

static Err err_from_name(const char *name)
{
    for (int i = ERR_ARG; i <= ERR_EXISTS; i++) {
        if (strcmp(err_name((Err)i), name) == 0) {
            return (Err)i;
        }
    }
    return ERR_PEER;
}

static void take_metrics(Trainer *trainer, const cJSON *head, TrainerReply *reply)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, json_get(head, "metrics"))
    {
        size_t n = item->string ? strlen(item->string) : 0;
        TrainerMetric *metric = &trainer->metrics[reply->metric_count];
        if (cJSON_IsNumber(item) && n > 0 && n < sizeof metric->name &&
            reply->metric_count < TRAINER_METRICS_MAX - 1) {
            memcpy(metric->name, item->string, n + 1);
            metric->value = item->valuedouble;
            reply->metric_count++;
        }
    }
    reply->metrics = trainer->metrics;
}

static void take_answer(Trainer *trainer, const char *type, const cJSON *head)
{
    const Request *request = &trainer->request;
    Fault fault = {0};
    if (!request->type || json_i64(head, "id", -2) != request->id ||
        strcmp(type, request->answer) != 0) {
        (void)fault_set(&fault, ERR_FORMAT, "use a core and a trainer of one version",
                        "the trainer answered \"%.40s\" to \"%s\"", type,
                        request->type ? request->type : "nothing");
        give_up(trainer, &fault);
        return;
    }
    TrainerReply reply = {.dir = json_string(head, "dir", NULL),
                          .digest = json_string(head, "digest", NULL),
                          .bytes = json_i64(head, "bytes", 0)};
    take_metrics(trainer, head, &reply);
    int64_t logprobs = json_i64(head, "count", 0);
    if (strcmp(type, "scored") == 0) {
        if (logprobs < 0 || (size_t)logprobs != trainer->reader.tail_n / sizeof(float) ||
            trainer->reader.tail_n % sizeof(float) != 0) {
            (void)fault_set(&fault, ERR_FORMAT, NULL, "the trainer's scores have a wrong count");
            give_up(trainer, &fault);
            return;
        }
        reply.logprobs = (const float *)(const void *)trainer->reader.tail;
        reply.logprob_count = (size_t)logprobs;
    }
    answer(trainer, &reply);
}

static void take_error(Trainer *trainer, const cJSON *head)
{
    Fault fault = {0};
    (void)fault_set(&fault, err_from_name(json_string(head, "code", "")),
                    json_string(head, "hint", NULL), "%s",
                    json_string(head, "sentence", "the trainer failed and did not say why"));
    if (!trainer->ready || !trainer->request.type) {
        give_up(trainer, &fault); /* it could not load, or could not read us */
    } else {
        answer_fault(trainer, &fault);
    }
}

static void take_hello(Trainer *trainer, const cJSON *head)
{
    if (json_i64(head, "protocol", 0) != TRAINER_PROTOCOL || trainer->ready) {
        Fault fault = {0};
        (void)fault_set(&fault, ERR_UNSUPPORTED, "use a core and a trainer of one version",
                        "the trainer speaks another protocol");
        give_up(trainer, &fault);
        return;
    }
    trainer->ready = true;
    uv_timer_stop(&trainer->stall);
    if (trainer->events.on_ready) {
        trainer->events.on_ready(trainer->events.user);
    }
}

static void take_frame(Trainer *trainer)
{
    Fault fault = {0};
    cJSON *head = NULL;
    if (json_parse((Str){trainer->reader.head, trainer->reader.head_n}, FRAME_HEAD_MAX,
                   "the head of an answer of the trainer", &head, &fault)) {
        give_up(trainer, &fault);
        return;
    }
    const char *type = json_string(head, "type", "");
    if (strcmp(type, "hello") == 0) {
        take_hello(trainer, head);
    } else if (strcmp(type, "progress") == 0) {
        if (trainer->request.type) {
            watch(trainer);
        }
        if (trainer->events.on_progress) {
            trainer->events.on_progress(json_string(head, "what", ""),
                                        json_double(head, "share", NAN), trainer->events.user);
        }
    } else if (strcmp(type, "error") == 0) {
        take_error(trainer, head);
    } else {
        take_answer(trainer, type, head);
    }
    cJSON_Delete(head);
}

static void take_bytes(Trainer *trainer, const char *bytes, size_t n)
{
    size_t at = 0;
    while (at < n && !trainer->freed && !trainer->refusal[0]) {
        size_t used = 0;
        bool whole = false;
        Fault fault = {0};
        if (frame_reader_feed(&trainer->reader, bytes + at, n - at, &used, &whole, &fault)) {
            give_up(trainer, &fault);
            return;
        }
        at += used;
        if (whole) {
            take_frame(trainer);
            if (!trainer->freed) {
                frame_reader_next(&trainer->reader);
            }
        }
    }
}

static void on_channel_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    Trainer *trainer = handle->data;
    (void)suggested;
    *buffer = uv_buf_init(trainer->chunk, TRAINER_CHUNK);
}

static void on_channel_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    Trainer *trainer = stream->data;
    if (n > 0) {
        take_bytes(trainer, buffer->base, (size_t)n);
    } else if (n < 0) {
        uv_read_stop(stream);
        child_kill(trainer->child, SIGKILL); /* without a channel it is of no use */
    }
}

/* ---- the process ---- */

static void on_child_line(Child *child, bool is_stderr, Str line, void *user)
{
    Trainer *trainer = user;
    (void)child;
    if (trainer->events.on_line && !trainer->freed) {
        trainer->events.on_line(is_stderr, line, trainer->events.user);
    }
}

/* An answer may still lie in the socket when the end is seen first. */
static void drain_channel(Trainer *trainer)
{
    uv_os_fd_t fd;
    uv_stream_t *channel = child_channel(trainer->child);
    uv_read_stop(channel);
    if (uv_fileno((const uv_handle_t *)channel, &fd) != 0) {
        return;
    }
    ssize_t n = 0;
    do {
        n = recv(fd, trainer->chunk, sizeof trainer->chunk, MSG_DONTWAIT);
        if (n > 0) {
            take_bytes(trainer, trainer->chunk, (size_t)n);
        }
    } while (!trainer->freed && (n > 0 || (n < 0 && errno == EINTR)));
}

static void on_child_exit(Child *child, int64_t status, int signal_number, void *user)
{
    Trainer *trainer = user;
    char how[FAULT_TEXT_MAX + 64];
    (void)child;
    drain_channel(trainer);
    if (trainer->freed) {
        return;
    }
    trainer->dead = true;
    uv_timer_stop(&trainer->stall);
    int n = signal_number
                ? snprintf(how, sizeof how, "signal %d (%s)", signal_number,
                           strsignal(signal_number))
                : snprintf(how, sizeof how, "exit status %lld", (long long)status);
    if (trainer->refusal[0] && n > 0 && (size_t)n < sizeof how) {
        snprintf(how, sizeof how, "%s", trainer->refusal);
    }
    Fault fault = {0};
    (void)fault_set(&fault, ERR_NET, "the core starts it again from the last saved state",
                    "the trainer (pid %d) ended with %s", trainer->pid, how);
    answer_fault(trainer, &fault);
    if (!trainer->freed && trainer->events.on_exit) {
        trainer->events.on_exit(how, trainer->refusal[0] ? trainer->refused : ERR_NET,
                                trainer->events.user);
    }
}

/* ---- requests ---- */

static void post(Trainer *trainer, Text *head, unsigned char *tail, size_t tail_n)
{
    Send *send = xcalloc(1, sizeof *send);
    send->head = *head;
    send->tail = tail;
    frame_prefix(head->n, tail_n, send->prefix);
    uv_buf_t buffers[3] = {
        uv_buf_init((char *)send->prefix, FRAME_PREFIX),
        uv_buf_init(send->head.p, (unsigned)head->n),
        uv_buf_init((char *)tail, (unsigned)tail_n),
    };
    int failed = uv_write(&send->write, child_channel(trainer->child), buffers,
                          tail_n > 0 ? 3 : 2, on_sent);
    if (failed) {
        on_sent(&send->write, failed); /* the child's end follows and answers the request */
    }
    watch(trainer);
}

static Err request_begin(Trainer *trainer, const char *type, Text *text, JsonOut *head,
                         Fault *fault)
{
    if (trainer->dead || !trainer->ready || trainer->refusal[0]) {
        return fault_set(fault, ERR_STATE, "wait until it is ready",
                         "the trainer is %s and cannot %s",
                         trainer->dead || trainer->refusal[0] ? "dead" : "still loading", type);
    }
    if (trainer->request.type) {
        return fault_set(fault, ERR_STATE, "one request at a time",
                         "the trainer is asked to %s while it is asked to %s", type,
                         trainer->request.type);
    }
    text_init(text, FRAME_HEAD_MAX);
    json_begin(head, text);
    json_object_begin(head);
    json_member_string(head, "type", type);
    json_member_i64(head, "id", trainer->last_id + 1);
    return ERR_OK;
}

static void request_end(Trainer *trainer, const char *type, const char *answer_type, Text *text,
                        JsonOut *head, unsigned char *tail, size_t tail_n, TrainerReplied on_done,
                        void *user)
{
    json_object_end(head);
    trainer->request = (Request){.type = type, .answer = answer_type, .on_done = on_done,
                                 .user = user, .id = ++trainer->last_id,
                                 .sent_us = clock_mono_us()};
    post(trainer, text, tail, tail_n);
}

Err trainer_train(Trainer *trainer, int64_t step, const TrainSample *samples, size_t count,
                  TrainerReplied on_done, void *user, Fault *fault)
{
    Text text;
    JsonOut head;
    unsigned char *tail = NULL;
    size_t tail_n = 0;
    Err err = request_begin(trainer, "train", &text, &head, fault);
    if (err) {
        return err;
    }
    json_member_i64(&head, "step", step);
    err = wire_batch_put(samples, count, &head, &tail, &tail_n, fault);
    if (err) {
        text_free(&text);
        return err;
    }
    request_end(trainer, "train", "trained", &text, &head, tail, tail_n, on_done, user);
    return ERR_OK;
}

Err trainer_score(Trainer *trainer, const int32_t *const *sequences, const size_t *counts,
                  size_t count, TrainerReplied on_done, void *user, Fault *fault)
{
    Text text;
    JsonOut head;
    unsigned char *tail = NULL;
    size_t tail_n = 0;
    Err err = request_begin(trainer, "score", &text, &head, fault);
    if (err) {
        return err;
    }
    err = wire_sequences_put(sequences, counts, count, NULL, &head, &tail, &tail_n, fault);
    if (err) {
        text_free(&text);
        return err;
    }
    request_end(trainer, "score", "scored", &text, &head, tail, tail_n, on_done, user);
    return ERR_OK;
}

Err trainer_publish(Trainer *trainer, ModelDtype dtype, const char *dir, TrainerReplied on_done,
                    void *user, Fault *fault)
{
    Text text;
    JsonOut head;
    if (dtype == MODEL_F16) {
        return fault_set(fault, ERR_UNSUPPORTED, "publish as bf16 or f32",
                         "the trainer does not publish F16");
    }
    Err err = request_begin(trainer, "publish", &text, &head, fault);
    if (err) {
        return err;
    }
    json_member_string(&head, "dtype", dtype == MODEL_BF16 ? "bf16" : "f32");
    json_member_string(&head, "dir", dir);
    request_end(trainer, "publish", "published", &text, &head, NULL, 0, on_done, user);
    return ERR_OK;
}

Err trainer_save(Trainer *trainer, const char *dir, TrainerReplied on_done, void *user,
                 Fault *fault)
{
    Text text;
    JsonOut head;
    Err err = request_begin(trainer, "save", &text, &head, fault);
    if (err) {
        return err;
    }
    json_member_string(&head, "dir", dir);
    request_end(trainer, "save", "saved", &text, &head, NULL, 0, on_done, user);
    return ERR_OK;
}

/* ---- life ---- */

static void greet(Trainer *trainer, const TrainerConfig *config)
{
    Text text;
    JsonOut head;
    text_init(&text, FRAME_HEAD_MAX);
    json_begin(&head, &text);
    json_object_begin(&head);
    json_member_string(&head, "type", "hello");
    json_member_i64(&head, "id", 0);
    json_member_i64(&head, "protocol", TRAINER_PROTOCOL);
    json_key(&head, "config");
    wire_config_put(&head, config);
    json_object_end(&head);
    post(trainer, &text, NULL, 0);
}

Err trainer_start(uv_loop_t *loop, const char *const *command, const TrainerConfig *config,
                  const TrainerEvents *events, Trainer **out, Fault *fault)
{
    static const char *const own[] = {"/proc/self/exe", "train", "--channel-fd", "3", NULL};
    *out = NULL;
    Trainer *trainer = xcalloc(1, sizeof *trainer);
    trainer->loop = loop;
    trainer->events = *events;
    frame_reader_init(&trainer->reader, TRAINER_ANSWER_MAX);
    uv_timer_init(loop, &trainer->stall);
    trainer->stall.data = trainer;
    ChildSpec spec = {.name = "trainer",
                      .argv = command ? command : own,
                      .channel = true,
                      .on_line = on_child_line,
                      .on_exit = on_child_exit,
                      .user = trainer};
    Err err = child_start(loop, &spec, &trainer->child, fault);
    if (err) {
        trainer->freed = true;
        uv_close((uv_handle_t *)&trainer->stall, on_stall_closed);
        return err;
    }
    trainer->pid = child_pid(trainer->child);
    uv_stream_t *channel = child_channel(trainer->child);
    channel->data = trainer;
    int uv = uv_read_start(channel, on_channel_alloc, on_channel_read);
    if (uv != 0) {
        trainer_free(trainer);
        return fault_set(fault, ERR_IO, NULL, "the trainer's channel cannot be read: %s",
                         uv_strerror(uv));
    }
    greet(trainer, config);
    *out = trainer;
    return ERR_OK;
}

int trainer_pid(const Trainer *trainer)
{
    return trainer->pid;
}

void trainer_free(Trainer *trainer)
{
    if (!trainer || trainer->freed) {
        return;
    }
    trainer->freed = true;
    uv_stream_t *channel = child_channel(trainer->child);
    if (channel && !uv_is_closing((const uv_handle_t *)channel)) {
        uv_read_stop(channel); /* the child outlives this struct until it is reaped */
    }
    child_free(trainer->child);
    uv_close((uv_handle_t *)&trainer->stall, on_stall_closed);
}
