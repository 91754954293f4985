/* `rolltop train --channel-fd 3`: reads one request, answers it, reads the next. It may be killed
 * at any moment: what it writes appears whole or not at all, and its parent answers for it. */
#include "core/train/trainer.h"

#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/base/mem.h"
#include "core/train/frame.h"
#include "core/train/learner.h"
#include "core/train/trainer_wire.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CHILD_READ = 1 << 18, PROGRESS_US = 200000 };

typedef struct Service {
    int fd;
    FrameReader reader;
    WireConfig wire;
    Learner *learner;
    int64_t id; /* of the request in work */
    int64_t told_us;
    bool broken; /* the channel can no longer be written */
} Service;

static bool send_all(int fd, const void *bytes, size_t n)
{
    const char *p = bytes;
    while (n > 0) {
        ssize_t sent = send(fd, p, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) {
            continue;
        }
        if (sent <= 0) {
            return false;
        }
        p += sent;
        n -= (size_t)sent;
    }
    return true;
}

static void send_frame(Service *service, const Text *head, const void *tail, size_t tail_n)
{
    unsigned char prefix[FRAME_PREFIX];
    frame_prefix(head->n, tail_n, prefix);
    service->broken = service->broken || !send_all(service->fd, prefix, sizeof prefix) ||
                      !send_all(service->fd, head->p, head->n) ||
                      !send_all(service->fd, tail, tail_n);
}

static void head_begin(Service *service, Text *text, JsonOut *out, const char *type)
{
    text_init(text, FRAME_HEAD_MAX);
    json_begin(out, text);
    json_object_begin(out);
    json_member_string(out, "type", type);
    json_member_i64(out, "id", service->id);
}

static void head_send(Service *service, Text *text, JsonOut *out, const void *tail, size_t tail_n)
{
    json_object_end(out);
    send_frame(service, text, tail, tail_n);
    text_free(text);
}

static void send_error(Service *service, const Fault *fault)
{
    Text text;
    JsonOut out;
    head_begin(service, &text, &out, "error");
    json_member_string(&out, "code", err_name(fault->code));
    json_member_string(&out, "sentence", fault->sentence);
    json_member_string(&out, "hint", fault->hint);
    head_send(service, &text, &out, NULL, 0);
    fprintf(stderr, "trainer: %s\n", fault->sentence);
}

static void on_progress(const char *what, double share, void *user)
{
    Service *service = user;
    int64_t now = clock_mono_us();
    if (now - service->told_us < PROGRESS_US) {
        return;
    }
    service->told_us = now;
    Text text;
    JsonOut out;
    head_begin(service, &text, &out, "progress");
    json_member_string(&out, "what", what);
    json_member_double(&out, "share", share);
    head_send(service, &text, &out, NULL, 0);
}

static void send_trained(Service *service, const LearnerMetrics *metrics)
{
    Text text;
    JsonOut out;
    head_begin(service, &text, &out, "trained");
    json_key(&out, "metrics");
    json_object_begin(&out);
    for (int i = 0; i < metrics->count; i++) {
        json_member_double(&out, metrics->items[i].name, metrics->items[i].value);
    }
    json_object_end(&out);
    head_send(service, &text, &out, NULL, 0);
}

/* ---- requests: each answers, or returns the failure that is sent for it ---- */

static Err do_hello(Service *service, const cJSON *head, Fault *fault)
{
    int64_t protocol = json_i64(head, "protocol", 0);
    if (protocol != TRAINER_PROTOCOL) {
        return fault_set(fault, ERR_UNSUPPORTED, "use a core and a trainer of one version",
                         "the core speaks trainer protocol %lld, this trainer %d",
                         (long long)protocol, (int)TRAINER_PROTOCOL);
    }
    if (service->learner) {
        return fault_set(fault, ERR_STATE, NULL, "the trainer was greeted twice");
    }
    Err err = wire_config_get(json_get(head, "config"), &service->wire, fault);
    if (!err) {
        err = learner_new(&service->wire.config, &service->learner, fault);
    }
    if (err) {
        wire_config_free(&service->wire);
        return err;
    }
    learner_on_progress(service->learner, on_progress, service);
    const ModelConfig *model = graph_config(learner_graph(service->learner));
    Text text;
    JsonOut out;
    head_begin(service, &text, &out, "hello");
    json_member_i64(&out, "protocol", TRAINER_PROTOCOL);
    json_member_string(&out, "trainer", "rolltop " ROLLTOP_VERSION);
    json_member_i64(&out, "pid", getpid());
    json_member_i64(&out, "params", model_parameter_count(model));
    json_member_i64(&out, "vocab", model->vocab);
    head_send(service, &text, &out, NULL, 0);
    return ERR_OK;
}

static Err do_train(Service *service, const cJSON *head, Fault *fault)
{
    WireBatch batch;
    Err err = wire_batch_get(head, service->reader.tail, service->reader.tail_n, &batch, fault);
    if (err) {
        return err;
    }
    LearnerMetrics metrics;
    double lr = json_double(head, "lr", service->wire.config.adam.lr);
    learner_set_lr(service->learner, lr);
    err = learner_train(service->learner, json_i64(head, "step", -1), batch.samples, batch.count,
                        &metrics, fault);
    wire_batch_free(&batch);
    if (!err) {
        send_trained(service, &metrics);
    }
    return err;
}

static Err do_sft(Service *service, const cJSON *head, Fault *fault)
{
    WireSequences s;
    Err err = wire_sequences_get(head, service->reader.tail, service->reader.tail_n, true, &s,
                                 fault);
    if (err) {
        return err;
    }
    LearnerMetrics metrics;
    err = learner_sft(service->learner, s.tokens, s.masks, s.counts, s.count, &metrics, fault);
    wire_sequences_free(&s);
    if (!err) {
        send_trained(service, &metrics);
    }
    return err;
}

static Err do_score(Service *service, const cJSON *head, Fault *fault)
{
    double temperature = json_double(head, "temperature", 1.0);
    if (!(temperature > 0.0)) {
        return fault_set(fault, ERR_ARG, "send a positive temperature",
                         "score was asked at temperature %g", temperature);
    }
    WireSequences s;
    Err err = wire_sequences_get(head, service->reader.tail, service->reader.tail_n, false, &s,
                                 fault);
    if (err) {
        return err;
    }
    size_t n = s.total - s.count;
    float *logp = xcalloc(n, sizeof *logp);
    err = learner_score(service->learner, s.tokens, s.counts, s.count, (float)temperature, logp,
                        fault);
    if (!err) {
        Text text;
        JsonOut out;
        head_begin(service, &text, &out, "scored");
        json_member_i64(&out, "count", (int64_t)n);
        head_send(service, &text, &out, logp, n * sizeof *logp);
    }
    free(logp);
    wire_sequences_free(&s);
    return err;
}

static Err head_dir(const cJSON *head, const char **dir, Fault *fault)
{
    *dir = json_string(head, "dir", NULL);
    if (!*dir || !**dir) {
        return fault_set(fault, ERR_ARG, NULL, "a request to write names no directory");
    }
    return ERR_OK;
}

static Err do_publish(Service *service, const cJSON *head, Fault *fault)
{
    const char *dir;
    const char *name = json_string(head, "dtype", "bf16");
    if (strcmp(name, "bf16") != 0 && strcmp(name, "f32") != 0) {
        return fault_set(fault, ERR_UNSUPPORTED, "publish as bf16 or f32",
                         "the trainer cannot publish as \"%s\"", name);
    }
    char digest[DIGEST_TEXT];
    int64_t bytes = 0;
    Err err = head_dir(head, &dir, fault);
    if (!err) {
        err = learner_publish(service->learner, name[0] == 'b' ? MODEL_BF16 : MODEL_F32, dir,
                              digest, &bytes, fault);
    }
    if (!err) {
        Text text;
        JsonOut out;
        head_begin(service, &text, &out, "published");
        json_member_string(&out, "dir", dir);
        json_member_string(&out, "digest", digest);
        json_member_i64(&out, "bytes", bytes);
        head_send(service, &text, &out, NULL, 0);
    }
    return err;
}

static Err do_save(Service *service, const cJSON *head, Fault *fault)
{
    const char *dir;
    Err err = head_dir(head, &dir, fault);
    if (!err) {
        err = learner_save(service->learner, dir, fault);
    }
    if (!err) {
        Text text;
        JsonOut out;
        head_begin(service, &text, &out, "saved");
        json_member_string(&out, "dir", dir);
        head_send(service, &text, &out, NULL, 0);
    }
    return err;
}

static const struct {
    const char *type;
    Err (*run)(Service *service, const cJSON *head, Fault *fault);
} requests[] = {{"hello", do_hello}, {"train", do_train},     {"sft", do_sft},
                {"score", do_score}, {"publish", do_publish}, {"save", do_save}};

static void serve_frame(Service *service)
{
    Fault fault = {0};
    cJSON *head = NULL;
    service->id = -1;
    Err err = json_parse((Str){service->reader.head, service->reader.head_n}, FRAME_HEAD_MAX,
                         "the head of a request", &head, &fault);
    if (!err) {
        const char *type = json_string(head, "type", "");
        service->id = json_i64(head, "id", -1);
        err = fault_set(&fault, ERR_UNSUPPORTED, "use a core and a trainer of one version",
                        "the trainer does not know the request \"%.40s\"", type);
        for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
            if (strcmp(type, requests[i].type) == 0) {
                fault_clear(&fault);
                err = i > 0 && !service->learner
                          ? fault_set(&fault, ERR_STATE, "send hello first",
                                      "the trainer has no model yet")
                          : requests[i].run(service, head, &fault);
            }
        }
    }
    if (err) {
        if (fault.code == ERR_OK) {
            (void)fault_set(&fault, err, NULL, "the request failed");
        }
        send_error(service, &fault);
    }
    cJSON_Delete(head);
}

/* Until the peer closes; 0 then, 1 when it stopped making sense. */
static int serve(Service *service)
{
    char *chunk = xcalloc(CHILD_READ, 1);
    int status = 0;
    bool open = true;
    while (open && !service->broken) {
        ssize_t n = read(service->fd, chunk, CHILD_READ);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            break;
        }
        size_t at = 0;
        while (open && at < (size_t)n) {
            size_t used = 0;
            bool whole = false;
            Fault fault = {0};
            if (frame_reader_feed(&service->reader, chunk + at, (size_t)n - at, &used, &whole,
                                  &fault)) {
                service->id = -1;
                send_error(service, &fault);
                status = 1;
                open = false;
            } else if (whole) {
                serve_frame(service);
                frame_reader_next(&service->reader);
            }
            at += used;
        }
    }
    free(chunk);
    return status;
}

enum { TRAIN_SPECS = 2 };

static void fill_specs(int64_t *fd, bool *help, FlagSpec specs[TRAIN_SPECS])
{
    const FlagSpec table[TRAIN_SPECS] = {
        {"channel-fd", FLAG_INT, fd, 0, 1023, "FD",
         "descriptor of the channel to the core, a socket (3)", NULL},
        {"help", FLAG_SWITCH, help, 0, 0, NULL, "this list", NULL}};
    memcpy(specs, table, sizeof table);
}

void trainer_child_flags(FlagVisit *visit, void *to)
{
    int64_t fd = 0;
    bool help = false;
    FlagSpec specs[TRAIN_SPECS];
    fill_specs(&fd, &help, specs);
    visit(specs, TRAIN_SPECS, to);
}

int trainer_child_main(int argc, char **argv)
{
    child_die_with_parent();
    int64_t fd = 3;
    bool help = false;
    FlagSpec specs[TRAIN_SPECS];
    fill_specs(&fd, &help, specs);
    static const FlagCommand command = {
        "usage: rolltop train [--channel-fd FD]\n\n"
        "The built-in trainer; started by the core, which speaks to it in frames\n"
        "(docs/trainer-protocol.md).\n",
        0, 0, NULL, "train takes flags only"};
    FlagRest rest;
    Fault fault = {0};
    FlagsEnd end = flags_command(&command, specs, TRAIN_SPECS, argc, argv, &rest, &fault);
    if (end == FLAGS_WRONG) {
        fault_print(&fault);
    }
    if (end != FLAGS_GO) {
        return end == FLAGS_HELP ? 0 : 2;
    }
    flags_free(specs, TRAIN_SPECS, &rest);
    int type = 0;
    socklen_t size = sizeof type;
    if (getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
        (void)fault_set_sys(&fault, ERR_ARG, errno, "let the core start the trainer",
                            "--channel-fd %lld is no open socket", (long long)fd);
        fault_print(&fault);
        return 2;
    }
    Service service = {.fd = (int)fd};
    frame_reader_init(&service.reader, FRAME_TAIL_MAX);
    int status = serve(&service);
    frame_reader_free(&service.reader);
    learner_free(service.learner);
    wire_config_free(&service.wire);
    return status;
}
