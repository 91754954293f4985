/* Tokens as a hash of (key, position). The log-prob is drawn from the same hash: between -0.01 and
 * -6, mostly small, as a trained policy's are. */
#include "core/serve/synthetic.h"

#include "core/base/hash.h"

#include <string.h>

static uint64_t mix(uint64_t v)
{
    v ^= v >> 30;
    v *= 0xbf58476d1ce4e5b9u;
    v ^= v >> 27;
    v *= 0x94d049bb133111ebu;
    return v ^ (v >> 31);
}

uint64_t synthetic_key(const char *policy_digest, const int32_t *prompt, size_t count)
{
    uint64_t policy = hash64(policy_digest, strlen(policy_digest), 0);
    return hash64(prompt, count * sizeof *prompt, policy);
}

int32_t synthetic_token(uint64_t key, int64_t position, float *logprob)
{
    uint64_t v = mix(key + 0x9e3779b97f4a7c15u * ((uint64_t)position + 1));
    if (logprob) {
        float unit = (float)((v >> 40) & 0xffffff) / 16777216.0f;
        *logprob = -0.01f - 5.99f * unit * unit * unit;
    }
    /* Ids 0 … EOS are left out: they are control tokens in every tokenizer that we know. */
    return (int32_t)(v % (SYNTHETIC_VOCAB - SYNTHETIC_EOS - 1)) + SYNTHETIC_EOS + 1;
}

int64_t synthetic_length(uint64_t key, int64_t max)
{
    if (max <= 1) {
        return 1;
    }
    double unit = (double)(mix(key ^ 0x5851f42d4c957f2du) >> 11) * 0x1p-53;
    /* Cubed: half of all answers end within an eighth of the limit, a few come near it. */
    int64_t length = 1 + (int64_t)((double)max * unit * unit * unit);
    return length < max ? length : max;
}
