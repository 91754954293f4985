#include "tests/harness.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/model/sampler.h"

#include <stdlib.h>

static int32_t *int_list(const cJSON *list, size_t *count)
{
    int32_t *out = xcalloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *out);
    const cJSON *item;
    *count = 0;
    cJSON_ArrayForEach(item, list)
    {
        out[(*count)++] = (int32_t)item->valuedouble;
    }
    return out;
}

static bool has_id(const int32_t *ids, size_t n, int32_t id, size_t *at)
{
    for (*at = 0; *at < n; (*at)++) {
        if (ids[*at] == id) {
            return true;
        }
    }
    return false;
}

typedef struct Case {
    float *logits;
    int vocab;
    SamplingParams params;
    PenaltyCounts counts;
    int32_t outputs;
    int32_t *stop_ids, *bias_ids;
    float *bias;
} Case;

static void load_case(const cJSON *c, Case *out)
{
    const cJSON *logits = json_get(c, "logits");
    const cJSON *p = json_get(c, "params");
    const cJSON *item;
    *out = (Case){.params = sampling_defaults()};
    out->logits = xcalloc((size_t)cJSON_GetArraySize(logits), sizeof(float));
    cJSON_ArrayForEach(item, logits)
    {
        out->logits[out->vocab++] = cJSON_IsNull(item) ? -INFINITY : (float)item->valuedouble;
    }
    SamplingParams *sp = &out->params;
    sp->temperature = (float)json_double(p, "temperature", 1);
    sp->top_p = (float)json_double(p, "top_p", 1);
    sp->top_k = (int32_t)json_i64(p, "top_k", -1);
    sp->min_p = (float)json_double(p, "min_p", 0);
    sp->frequency_penalty = (float)json_double(p, "frequency_penalty", 0);
    sp->presence_penalty = (float)json_double(p, "presence_penalty", 0);
    sp->repetition_penalty = (float)json_double(p, "repetition_penalty", 1);
    sp->min_new_tokens = (int32_t)json_i64(p, "min_new_tokens", 0);
    cJSON_ArrayForEach(item, json_get(p, "output_ids"))
    {
        penalty_add(&out->counts, (int32_t)item->valuedouble);
        out->outputs++;
    }
    out->stop_ids = int_list(json_get(p, "stop_ids"), &sp->stop_count);
    sp->stop_ids = out->stop_ids;
    const cJSON *bias = json_get(p, "logit_bias");
    size_t n = (size_t)cJSON_GetArraySize(bias) + 1;
    out->bias_ids = xcalloc(n, sizeof(int32_t));
    out->bias = xcalloc(n, sizeof(float));
    cJSON_ArrayForEach(item, bias)
    {
        out->bias_ids[sp->bias_count] = (int32_t)strtol(item->string, NULL, 10);
        out->bias[sp->bias_count++] = (float)item->valuedouble;
    }
    sp->bias_ids = out->bias_ids;
    sp->bias = out->bias;
}

static void free_case(Case *c)
{
    free(c->logits);
    free(c->stop_ids);
    free(c->bias_ids);
    free(c->bias);
    penalty_free(&c->counts);
}

static void check_distribution(Sampler *s, const Case *c, const cJSON *joint, const char *kind)
{
    size_t want_n;
    int32_t *want = int_list(json_get(joint, "ids"), &want_n);
    const cJSON *probs = json_get(joint, "probs");
    const int32_t *ids;
    const float *got;
    size_t n = sampler_distribution(s, c->logits, &c->params, &c->counts, c->outputs, &ids, &got);
    /* The reference computes in double: it keeps what a float calls 0, and with top_p 1 it cuts
     * what comes after its rounded running sum has passed 1. Neither can ever be drawn. */
    double found = 0.0;
    size_t at;
    for (size_t i = 0; i < want_n; i++) {
        double p = cJSON_GetArrayItem(probs, (int)i)->valuedouble;
        bool there = has_id(ids, n, want[i], &at);
        if (!there && p > 1e-37) {
            fprintf(stderr, "%s\n", kind);
        }
        CHECK(there || p <= 1e-37);
        if (there) {
            CHECK_NEAR(got[at], p, 1e-5);
            found += p;
        }
    }
    CHECK_NEAR(found, 1.0, 1e-6);
    for (size_t i = 0; i < n; i++) {
        CHECK(has_id(want, want_n, ids[i], &at) || got[i] < 1e-15f);
    }
    for (size_t i = 1; i < n; i++) {
        CHECK(got[i] <= got[i - 1]);
    }
    free(want);
}

/* Draws must come from the kept ids, and the log-prob must be the one before the filters. */
static void check_draws(Sampler *s, const Case *c, const cJSON *joint, const cJSON *vector)
{
    Rng rng;
    size_t kept_n;
    size_t at_n;
    int32_t *kept = int_list(json_get(joint, "ids"), &kept_n);
    int32_t *at = int_list(json_get(vector, "at"), &at_n);
    const cJSON *logprobs = json_get(vector, "log_probs");
    rng_seed(&rng, 7);
    for (int i = 0; i < 64; i++) {
        SampledToken token;
        size_t place;
        CHECK_I64(sampler_draw(s, c->logits, &c->params, &c->counts, c->outputs, &rng, &token), 0);
        CHECK(has_id(kept, kept_n, token.id, &place));
        if (has_id(at, at_n, token.id, &place)) {
            CHECK_NEAR(token.logprob, cJSON_GetArrayItem(logprobs, (int)place)->valuedouble, 2e-4);
        }
    }
    bool plain = c->counts.count == 0 && c->params.bias_count == 0 && c->params.stop_count == 0;
    for (size_t i = 0; plain && i < at_n; i++) {
        const cJSON *want = cJSON_GetArrayItem(logprobs, (int)i);
        if (cJSON_IsNumber(want)) {
            double allow = 2e-4 + fabs(want->valuedouble) * 1e-6; /* a float holds 7 digits */
            CHECK_NEAR(sampler_logprob(c->logits, c->vocab, c->params.temperature, at[i]),
                       want->valuedouble, allow);
        }
    }
    free(kept);
    free(at);
}

static void vectors(void)
{
    Text text;
    Fault fault = {0};
    const cJSON *c;
    int seen = 0;
    text_init(&text, 4 << 20);
    CHECK_I64(fs_read(ROLLTOP_TEST_DATA "/golden-qwen3/sampling.json", &text, &fault), ERR_OK);
    cJSON *root = cJSON_ParseWithLength(text_c(&text), text.n);
    cJSON_ArrayForEach(c, json_get(root, "cases"))
    {
        Case one;
        load_case(c, &one);
        Sampler *s = sampler_new(one.vocab);
        check_distribution(s, &one, json_get(c, "joint"), json_string(c, "kind", "?"));
        check_draws(s, &one, json_get(c, "joint"), c);
        sampler_free(s);
        free_case(&one);
        seen++;
    }
    CHECK_I64(seen, 208);
    cJSON_Delete(root);
    text_free(&text);
}

/* Frequencies of many draws against the distribution, without and with filters. */
static void frequencies(void)
{
    enum { VOCAB = 300, DRAWS = 60000 };
    float logits[VOCAB];
    int hits[VOCAB];
    Rng rng;
    rng_seed(&rng, 11);
    for (int i = 0; i < VOCAB; i++) {
        logits[i] = (float)rng_normal(&rng) * 2.0f;
    }
    Sampler *s = sampler_new(VOCAB);
    for (int round = 0; round < 3; round++) {
        SamplingParams p = sampling_defaults();
        p.temperature = round == 0 ? 1.0f : 0.8f;
        p.top_p = round == 1 ? 0.9f : 1.0f;
        p.top_k = round == 2 ? 20 : -1;
        memset(hits, 0, sizeof hits);
        for (int i = 0; i < DRAWS; i++) {
            SampledToken token;
            CHECK_I64(sampler_draw(s, logits, &p, NULL, 0, &rng, &token), ERR_OK);
            hits[token.id]++;
        }
        const int32_t *ids;
        const float *probs;
        size_t n = sampler_distribution(s, logits, &p, NULL, 0, &ids, &probs);
        double chi = 0.0;
        int cells = 0;
        int total = 0;
        for (size_t i = 0; i < n; i++) {
            double want = (double)probs[i] * DRAWS;
            total += hits[ids[i]];
            if (want >= 10.0) {
                chi += (hits[ids[i]] - want) * (hits[ids[i]] - want) / want;
                cells++;
            }
        }
        CHECK_I64(total, DRAWS); /* nothing outside the kept set */
        CHECK(chi < cells + 6.0 * sqrt(2.0 * cells)); /* six standard deviations */
    }
    sampler_free(s);
}

static void odd_logits(void)
{
    enum { VOCAB = 130 };
    float x[VOCAB];
    SampledToken token;
    Rng rng;
    SamplingParams p = sampling_defaults();
    Sampler *s = sampler_new(VOCAB);
    rng_seed(&rng, 1);
    for (int i = 0; i < VOCAB; i++) {
        x[i] = -INFINITY;
    }
    CHECK_I64(sampler_draw(s, x, &p, NULL, 0, &rng, &token), ERR_NUMERIC);
    x[100] = 3.0f;
    CHECK_I64(sampler_draw(s, x, &p, NULL, 0, &rng, &token), ERR_OK);
    CHECK_I64(token.id, 100);
    CHECK_NEAR(token.logprob, 0.0, 1e-6);
    p.top_p = 0.5f;
    CHECK_I64(sampler_draw(s, x, &p, NULL, 0, &rng, &token), ERR_OK);
    CHECK_I64(token.id, 100);
    x[3] = NAN;
    CHECK_I64(sampler_draw(s, x, &p, NULL, 0, &rng, &token), ERR_NUMERIC);
    x[3] = INFINITY;
    CHECK_I64(sampler_draw(s, x, &p, NULL, 0, &rng, &token), ERR_NUMERIC);
    x[3] = 3.0f;
    p.temperature = 0.0f;
    CHECK_I64(sampler_draw(s, x, &p, NULL, 0, &rng, &token), ERR_OK);
    CHECK_I64(token.id, 3); /* the first of equals */
    CHECK_NEAR(token.logprob, -log(2.0), 1e-6);
    for (int i = 0; i < VOCAB; i++) { /* flat: every bucket rule meets one bucket */
        x[i] = 1.0f;
    }
    p = sampling_defaults();
    p.top_k = 7;
    const int32_t *ids;
    const float *probs;
    CHECK_I64(sampler_distribution(s, x, &p, NULL, 0, &ids, &probs), 7);
    CHECK_I64(ids[6], 6);
    CHECK_NEAR(probs[0], 1.0 / 7, 1e-6);
    sampler_free(s);
}

/* Not a gate: one line that shows the cost of a token. */
static void speed(void)
{
    static const int sizes[] = {512, 49152};
    for (int k = 0; k < 2; k++) {
        int vocab = sizes[k];
        float *x = xcalloc((size_t)vocab, sizeof *x);
        Sampler *s = sampler_new(vocab);
        Rng rng;
        rng_seed(&rng, 5);
        for (int i = 0; i < vocab; i++) {
            x[i] = (float)rng_normal(&rng) * 3.0f;
        }
        for (int mode = 0; mode < 3; mode++) {
            SamplingParams p = sampling_defaults();
            p.top_p = mode == 1 ? 0.95f : 1.0f;
            p.top_k = mode == 2 ? 50 : -1;
            SampledToken token = {0};
            int rounds = k == 0 ? 2000 : 50;
            int64_t from = clock_cpu_us();
            for (int i = 0; i < rounds; i++) {
                CHECK_I64(sampler_draw(s, x, &p, NULL, 0, &rng, &token), ERR_OK);
            }
            printf("vocab %d, %s: %.2f us a token\n", vocab,
                   mode == 0 ? "no filter" : mode == 1 ? "top_p 0.95" : "top_k 50",
                   (double)(clock_cpu_us() - from) / rounds);
        }
        sampler_free(s);
        free(x);
    }
}

int main(void)
{
    RUN(vectors);
    RUN(frequencies);
    RUN(odd_logits);
    RUN(speed);
    return test_end();
}
