/* Frames cut at every place, lies about sizes, and batches through the wire and back. */
#include "core/train/frame.h"
#include "tests/harness.h"

#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/train/trainer_wire.h"

#include <stdlib.h>

static size_t frame_make(const char *head, const char *tail, size_t tail_n, unsigned char *out)
{
    size_t head_n = strlen(head);
    frame_prefix(head_n, tail_n, out);
    memcpy(out + FRAME_PREFIX, head, head_n);
    memcpy(out + FRAME_PREFIX + head_n, tail, tail_n);
    return FRAME_PREFIX + head_n + tail_n;
}

static void every_cut(void)
{
    unsigned char bytes[256];
    size_t n = frame_make("{\"a\":1}", "tail", 4, bytes);
    n += frame_make("{\"b\":2}", "", 0, bytes + n);
    for (size_t step = 1; step <= n; step++) {
        FrameReader reader;
        frame_reader_init(&reader, 100);
        int frames = 0;
        for (size_t at = 0; at < n;) {
            size_t give = step < n - at ? step : n - at;
            size_t used = 0;
            bool whole = false;
            CHECK_I64(frame_reader_feed(&reader, bytes + at, give, &used, &whole, NULL), ERR_OK);
            CHECK(used > 0 && used <= give);
            at += used;
            if (whole) {
                CHECK_STR(reader.head, frames == 0 ? "{\"a\":1}" : "{\"b\":2}");
                CHECK_I64(reader.tail_n, frames == 0 ? 4 : 0);
                CHECK(frames > 0 || memcmp(reader.tail, "tail", 4) == 0);
                frames++;
                frame_reader_next(&reader);
            }
        }
        CHECK_I64(frames, 2);
        frame_reader_free(&reader);
    }
}

static void long_tail(void)
{
    size_t tail_n = (5u << 20) + 17;
    unsigned char *bytes = xcalloc(tail_n + 64, 1);
    unsigned char *tail = xcalloc(tail_n, 1);
    Rng rng;
    rng_seed(&rng, 3);
    for (size_t i = 0; i < tail_n; i++) {
        tail[i] = (unsigned char)rng_u64(&rng);
    }
    size_t n = frame_make("{}", (const char *)tail, tail_n, bytes);
    FrameReader reader;
    frame_reader_init(&reader, 6u << 20);
    bool whole = false;
    for (size_t at = 0; at < n && !whole;) {
        size_t give = 100003 < n - at ? 100003 : n - at;
        size_t used = 0;
        CHECK_I64(frame_reader_feed(&reader, bytes + at, give, &used, &whole, NULL), ERR_OK);
        at += used;
    }
    CHECK(whole);
    CHECK(memcmp(reader.tail, tail, tail_n) == 0);
    frame_reader_free(&reader);
    free(bytes);
    free(tail);
}

static void lies_are_refused(void)
{
    unsigned char prefix[FRAME_PREFIX];
    size_t used = 0;
    bool whole = false;
    const size_t sizes[][2] = {{0, 4}, {FRAME_HEAD_MAX + 1, 0}, {0xffffffffu, 0}, {2, 101},
                               {2, 0xffffffffu}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        FrameReader reader;
        Fault fault = {0};
        frame_reader_init(&reader, 100);
        frame_prefix(sizes[i][0], sizes[i][1], prefix);
        Err err = frame_reader_feed(&reader, prefix, sizeof prefix, &used, &whole, &fault);
        CHECK_I64(err, i == 0 ? ERR_FORMAT : ERR_LIMIT);
        CHECK(fault.sentence[0] != '\0');
        frame_reader_free(&reader);
    }
}

static void config_both_ways(void)
{
    TrainerConfig config = trainer_config_default();
    config.load_dir = "/models/a \"b\"";
    config.loss.estimator = ADVANTAGE_CISPO;
    config.loss.kl_loss_type = KL_LOW_VAR;
    config.loss.loss_type = LOSS_SFT;
    config.loss.eps_clip_high = 0.28;
    config.loss.use_tis = true;
    config.loss.grpo_std_normalization = false;
    config.adam.lr = 1.7e-5;
    config.adam.decay_1d = true;
    config.global_batch_size = 123456789012;
    config.max_tokens_per_pass = 777;
    config.seed = UINT64_MAX;
    Text text;
    JsonOut out;
    text_init(&text, 1 << 16);
    json_begin(&out, &text);
    wire_config_put(&out, &config);
    cJSON *json = NULL;
    CHECK_I64(json_parse(text_str(&text), 1 << 16, "config", &json, NULL), ERR_OK);
    WireConfig back;
    Fault fault = {0};
    CHECK_I64(wire_config_get(json, &back, &fault), ERR_OK);
    CHECK_STR(fault.sentence, "");
    CHECK_STR(back.config.load_dir, config.load_dir);
    CHECK(back.config.ref_dir == NULL && back.config.dump_dir == NULL);
    CHECK(back.config.seed == UINT64_MAX);
    CHECK_I64(back.config.global_batch_size, config.global_batch_size);
    CHECK_I64(back.config.max_tokens_per_pass, 777);
    CHECK_NEAR(back.config.adam.lr, 1.7e-5, 0.0);
    /* Field by field would repeat the table; the text of both must agree instead. */
    Text again;
    text_init(&again, 1 << 16);
    json_begin(&out, &again);
    wire_config_put(&out, &back.config);
    CHECK_STR(text_c(&again), text_c(&text));
    CHECK_I64(back.config.loss.estimator, ADVANTAGE_CISPO);
    CHECK_I64(back.config.loss.kl_loss_type, KL_LOW_VAR);
    CHECK_I64(back.config.loss.grpo_std_normalization, false);
    wire_config_free(&back);
    cJSON_Delete(json);
    text_free(&again);
    text_free(&text);
}

static void bad_config_is_named(void)
{
    const char *const bad[][2] = {{"{\"learning_rate\":1}", "learning_rate"},
                                  {"{\"lr\":\"fast\"}", "lr"},
                                  {"{\"threads\":1.5}", "threads"},
                                  {"{\"threads\":4294967297}", "threads"},
                                  {"{\"kl_loss_type\":\"k9\"}", "kl_loss_type"},
                                  {"{\"use_tis\":1}", "use_tis"},
                                  {"{\"seed\":-1}", "seed"},
                                  {"{\"load_dir\":5}", "load_dir"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cJSON *json = cJSON_Parse(bad[i][0]);
        WireConfig config;
        Fault fault = {0};
        CHECK(wire_config_get(json, &config, &fault) != ERR_OK);
        CHECK(strstr(fault.sentence, bad[i][1]) != NULL);
        wire_config_free(&config);
        cJSON_Delete(json);
    }
}

enum { SAMPLES = 3 };
static const int32_t tokens[SAMPLES][6] = {{1, 2, 3, 4, 5, 6}, {7, 8, 9}, {10, 11, 12, 13}};
static const float logp[SAMPLES][4] = {{-0.5f, -1.5f}, {-2.5f}, {-3.5f, -4.5f, -5.5f}};
static const uint8_t mask[4] = {1, 0, 1};

static void batch_make(TrainSample *samples)
{
    const size_t prompts[SAMPLES] = {4, 2, 1};
    const size_t answers[SAMPLES] = {2, 1, 3};
    for (size_t i = 0; i < SAMPLES; i++) {
        samples[i] = (TrainSample){.tokens = tokens[i], .prompt_count = prompts[i],
                                   .response_count = answers[i], .rollout_logp = logp[i],
                                   .mask = i == 2 ? mask : NULL, .reward = 0.25 * (double)i,
                                   .rollout_id = INT64_MIN + (int64_t)i};
    }
}

static cJSON *batch_send(const TrainSample *samples, size_t count, unsigned char **tail,
                         size_t *tail_n, Err *err)
{
    Text text;
    JsonOut head;
    Fault fault = {0};
    cJSON *json = NULL;
    text_init(&text, 1 << 16);
    json_begin(&head, &text);
    json_object_begin(&head);
    *err = wire_batch_put(samples, count, &head, tail, tail_n, &fault);
    json_object_end(&head);
    CHECK_I64(json_parse(text_str(&text), 1 << 16, "head", &json, NULL), ERR_OK);
    text_free(&text);
    return json;
}

static void batch_both_ways(void)
{
    TrainSample samples[SAMPLES];
    batch_make(samples);
    unsigned char *tail = NULL;
    size_t tail_n = 0;
    Err err;
    cJSON *head = batch_send(samples, SAMPLES, &tail, &tail_n, &err);
    CHECK_I64(err, ERR_OK);
    WireBatch back;
    CHECK_I64(wire_batch_get(head, tail, tail_n, &back, NULL), ERR_OK);
    CHECK_I64(back.count, SAMPLES);
    for (size_t i = 0; i < back.count; i++) {
        const TrainSample *a = &samples[i];
        const TrainSample *b = &back.samples[i];
        CHECK_I64(b->prompt_count, a->prompt_count);
        CHECK_I64(b->response_count, a->response_count);
        CHECK(memcmp(a->tokens, b->tokens, 4 * (a->prompt_count + a->response_count)) == 0);
        CHECK(memcmp(a->rollout_logp, b->rollout_logp, 4 * a->response_count) == 0);
        CHECK_NEAR(b->reward, a->reward, 0.0);
        CHECK(b->rollout_id == a->rollout_id);
        for (size_t t = 0; t < a->response_count; t++) {
            CHECK_I64(b->mask[t], a->mask ? a->mask[t] : 1);
        }
    }
    wire_batch_free(&back);
    /* Every shorter tail, and a longer one, is refused without a read beyond it. */
    for (size_t n = 0; n < tail_n; n++) {
        unsigned char *part = xcalloc(n ? n : 1, 1);
        memcpy(part, tail, n);
        CHECK_I64(wire_batch_get(head, part, n, &back, NULL), ERR_FORMAT);
        free(part);
    }
    /* Counts inside the tail that do not add up. */
    int32_t huge = INT32_MAX;
    memcpy(tail + 16 * SAMPLES, &huge, 4);
    CHECK_I64(wire_batch_get(head, tail, tail_n, &back, NULL), ERR_FORMAT);
    huge = -4;
    memcpy(tail + 16 * SAMPLES, &huge, 4);
    CHECK_I64(wire_batch_get(head, tail, tail_n, &back, NULL), ERR_FORMAT);
    cJSON_Delete(head);
    free(tail);
}

static void unfit_batches(void)
{
    TrainSample samples[SAMPLES];
    unsigned char *tail = NULL;
    size_t tail_n = 0;
    Err err;
    batch_make(samples);
    samples[1].response_count = 0;
    cJSON_Delete(batch_send(samples, SAMPLES, &tail, &tail_n, &err));
    CHECK_I64(err, ERR_ARG);
    batch_make(samples);
    samples[2].rollout_logp = NULL;
    cJSON_Delete(batch_send(samples, SAMPLES, &tail, &tail_n, &err));
    CHECK_I64(err, ERR_ARG);
    cJSON_Delete(batch_send(samples, 0, &tail, &tail_n, &err));
    CHECK_I64(err, ERR_ARG);
    CHECK(tail == NULL);
}

static void sequences_both_ways(void)
{
    const int32_t *rows[SAMPLES] = {tokens[0], tokens[1], tokens[2]};
    const uint8_t *masks[SAMPLES] = {mask, mask, mask};
    const size_t counts[SAMPLES] = {4, 3, 2};
    for (int masked = 0; masked < 2; masked++) {
        Text text;
        JsonOut out;
        text_init(&text, 4096);
        json_begin(&out, &text);
        json_object_begin(&out);
        unsigned char *tail = NULL;
        size_t tail_n = 0;
        CHECK_I64(wire_sequences_put(rows, counts, SAMPLES, masked ? masks : NULL, &out, &tail,
                                     &tail_n, NULL), ERR_OK);
        json_object_end(&out);
        cJSON *head = cJSON_Parse(text_c(&text));
        WireSequences back;
        CHECK_I64(wire_sequences_get(head, tail, tail_n, masked, &back, NULL), ERR_OK);
        CHECK_I64(back.count, SAMPLES);
        CHECK_I64(back.total, 9);
        CHECK_I64(back.tokens[2][1], 11);
        CHECK_I64(back.counts[1], 3);
        wire_sequences_free(&back);
        CHECK_I64(wire_sequences_get(head, tail, tail_n, !masked, &back, NULL), ERR_FORMAT);
        for (size_t n = 0; n < tail_n; n++) {
            CHECK_I64(wire_sequences_get(head, tail, n, masked, &back, NULL), ERR_FORMAT);
        }
        cJSON_Delete(head);
        free(tail);
        text_free(&text);
    }
}

int main(void)
{
    RUN(every_cut);
    RUN(long_tail);
    RUN(lies_are_refused);
    RUN(config_both_ways);
    RUN(bad_config_is_named);
    RUN(batch_both_ways);
    RUN(unfit_batches);
    RUN(sequences_both_ways);
    return test_end();
}
