/* A trainer that learns nothing, for tests and benches of everything around it: it speaks the
 * trainer's protocol, publishes the base checkpoint with a number in its last bits, so that every
 * policy has a digest of its own, and scores as the synthetic engines do under that digest. */
#ifndef ROLLTOP_TESTS_STUB_TRAINER_H
#define ROLLTOP_TESTS_STUB_TRAINER_H

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/model/checkpoint.h"
#include "core/model/digest.h"
#include "core/serve/synthetic.h"
#include "core/train/frame.h"
#include "core/train/trainer_wire.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STUB_FD = 3, STUB_FILE_MAX = 1 << 30 };

typedef struct Stub {
    const char *base;
    void (*answered)(const char *type); /* after each answer; may be NULL */
    char digest[DIGEST_TEXT]; /* of what it published last */
    int64_t published;
} Stub;

static inline void stub_send(Text *head, JsonOut *out, const void *tail, size_t tail_n)
{
    unsigned char prefix[FRAME_PREFIX];
    json_object_end(out);
    frame_prefix(head->n, tail_n, prefix);
    const struct { const void *p; size_t n; } parts[] = {
        {prefix, sizeof prefix}, {head->p, head->n}, {tail, tail_n}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        for (size_t at = 0; at < parts[i].n;) {
            ssize_t n = send(STUB_FD, (const char *)parts[i].p + at, parts[i].n - at, MSG_NOSIGNAL);
            if (n <= 0) {
                exit(0); /* the core has gone */
            }
            at += (size_t)n;
        }
    }
    text_free(head);
}

static inline void stub_begin(Text *head, JsonOut *out, const char *type, const cJSON *request)
{
    text_init(head, FRAME_HEAD_MAX);
    json_begin(out, head);
    json_object_begin(out);
    json_member_string(out, "type", type);
    json_member_i64(out, "id", json_i64(request, "id", 0));
}

static inline void stub_must(Err err, const Fault *fault)
{
    if (err != ERR_OK) {
        fault_print(fault);
        exit(1);
    }
}

/* The files of `base`; the low bits of the last 40 floats hold the number of the publication. */
static inline void stub_copy(const Stub *stub, const char *to)
{
    Fault fault = {0};
    DIR *dir = opendir(stub->base);
    char *made = xasprintf("%s.tmp", to);
    stub_must(fs_mkdirs(made, 0755, &fault), &fault);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        char *from = fs_join(stub->base, entry->d_name);
        char *copy = fs_join(made, entry->d_name);
        if (entry->d_name[0] != '.' && !fs_is_dir(from)) {
            Text text;
            text_init(&text, STUB_FILE_MAX);
            stub_must(fs_read(from, &text, &fault), &fault);
            if (str_ends(str_from(entry->d_name), STR(".safetensors")) && text.n > 8) {
                for (int bit = 0; bit < 40; bit++) {
                    size_t at = text.n - 4 * (size_t)(bit + 1);
                    text.p[at] = (char)((text.p[at] & ~1) | ((stub->published >> bit) & 1));
                }
            }
            stub_must(fs_write_atomic(copy, text.p, text.n, &fault), &fault);
            text_free(&text);
        }
        free(from);
        free(copy);
    }
    if (dir) {
        closedir(dir);
    }
    if (rename(made, to) != 0) {
        perror(to);
        exit(1);
    }
    free(made);
}

static inline void stub_publish(Stub *stub, const cJSON *request, Text *head, JsonOut *out)
{
    Fault fault = {0};
    ModelConfig config;
    StSet *set = NULL;
    int64_t bytes = 0;
    const char *to = json_string(request, "dir", "");
    stub->published++;
    stub_copy(stub, to);
    stub_must(model_config_load(to, &config, &fault), &fault);
    stub_must(checkpoint_open(to, &config, &set, &fault), &fault);
    stub_must(checkpoint_digest(set, &config, stub->digest, &fault), &fault);
    for (int i = 0; i < model_tensor_count(&config); i++) {
        bytes += (int64_t)checkpoint_tensor(set, &config, i)->bytes;
    }
    st_set_close(set);
    stub_begin(head, out, "published", request);
    json_member_string(out, "dir", to);
    json_member_string(out, "digest", stub->digest);
    json_member_i64(out, "bytes", bytes);
}

/* As core/serve/engine_core_step.c's synthetic_input. */
static inline void stub_score(const Stub *stub, const cJSON *request, const FrameReader *frame)
{
    WireSequences s;
    Fault fault = {0};
    stub_must(wire_sequences_get(request, frame->tail, frame->tail_n, false, &s, &fault), &fault);
    float *scores = xcalloc(s.total, sizeof *scores);
    size_t n = 0;
    for (size_t k = 0; k < s.count; k++) {
        uint64_t chain = synthetic_key(stub->digest, s.tokens[k], 0);
        for (size_t i = 0; i + 1 < s.counts[k]; i++) {
            chain = hash64(&s.tokens[k][i], sizeof(int32_t), chain);
            (void)synthetic_token(chain ^ (uint64_t)s.tokens[k][i + 1], 0, &scores[n++]);
        }
    }
    Text head;
    JsonOut out;
    stub_begin(&head, &out, "scored", request);
    json_member_i64(&out, "count", (int64_t)n);
    stub_send(&head, &out, scores, n * sizeof *scores);
    free(scores);
    wire_sequences_free(&s);
}

static inline void stub_answer(Stub *stub, const FrameReader *frame)
{
    cJSON *request = NULL;
    Fault fault = {0};
    Text head;
    JsonOut out;
    stub_must(json_parse((Str){frame->head, frame->head_n}, FRAME_HEAD_MAX, "request", &request,
                         &fault), &fault);
    const char *type = json_string(request, "type", "");
    if (strcmp(type, "score") == 0) {
        stub_score(stub, request, frame);
        if (stub->answered) {
            stub->answered(type);
        }
        cJSON_Delete(request);
        return;
    }
    if (strcmp(type, "hello") == 0) {
        stub_begin(&head, &out, "hello", request);
        json_member_i64(&out, "protocol", TRAINER_PROTOCOL);
        json_member_string(&out, "trainer", "stub");
        json_member_i64(&out, "pid", getpid());
        json_member_i64(&out, "params", 1);
        json_member_i64(&out, "vocab", SYNTHETIC_VOCAB);
    } else if (strcmp(type, "publish") == 0) {
        stub_publish(stub, request, &head, &out);
    } else if (strcmp(type, "save") == 0) {
        stub_must(fs_mkdirs(json_string(request, "dir", ""), 0755, &fault), &fault);
        stub_begin(&head, &out, "saved", request);
        json_member_string(&out, "dir", json_string(request, "dir", ""));
    } else {
        stub_begin(&head, &out, "trained", request);
        json_key(&out, "metrics");
        json_object_begin(&out);
        json_object_end(&out);
    }
    stub_send(&head, &out, NULL, 0);
    if (stub->answered) {
        stub->answered(type);
    }
    cJSON_Delete(request);
}

/* Serves descriptor 3 until the core closes it. */
static inline int stub_serve(const char *base, void (*answered)(const char *type))
{
    /* Another life of it must not make the same bytes again for another version. */
    Stub stub = {.base = base, .answered = answered, .published = (int64_t)getpid() << 20};
    FrameReader frame;
    Fault fault = {0};
    static char bytes[1 << 18];
    frame_reader_init(&frame, FRAME_TAIL_MAX);
    for (ssize_t n; (n = read(STUB_FD, bytes, sizeof bytes)) > 0;) {
        for (size_t at = 0, used = 0; at < (size_t)n; at += used) {
            bool whole = false;
            stub_must(frame_reader_feed(&frame, bytes + at, (size_t)n - at, &used, &whole, &fault),
                      &fault);
            if (whole) {
                stub_answer(&stub, &frame);
                frame_reader_next(&frame);
            }
        }
    }
    frame_reader_free(&frame);
    return 0;
}

#endif
