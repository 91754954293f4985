/* Which versions go out as deltas, and what of old ones has to stay. */
#include "core/policy/delta_plan.h"

#include "core/base/rng.h"
#include "tests/harness.h"

static DeltaPlan good(void)
{
    return (DeltaPlan){.version = 8, .committed = 7, .chain = 7, .full = 5, .full_every = 10,
                       .followers = 3, .base_known = true};
}

static void test_plan(void)
{
    DeltaPlan p = good();
    CHECK(delta_plan(&p));
    p = good();
    p.version = 9; /* v8 was refused or rolled back */
    CHECK(!delta_plan(&p));
    p = good();
    p.chain = 8; /* v8 was published in the chain, never committed, and is published again */
    CHECK(!delta_plan(&p));
    p = good();
    p.chain = p.full = -1; /* the core was started anew */
    CHECK(!delta_plan(&p));
    p = good();
    p.followers = 0; /* everybody was replaced: nobody could use it */
    CHECK(!delta_plan(&p));
    p = good();
    p.base_known = false;
    CHECK(!delta_plan(&p));
    p = good();
    p.committed = 5; /* the operator went back to an older version */
    CHECK(!delta_plan(&p));
    p = good();
    p.full_every = 3; /* v5 was complete, v6 and v7 were not */
    CHECK(!delta_plan(&p));
    p.full_every = 4;
    CHECK(delta_plan(&p));
    p.full_every = 1;
    CHECK(!delta_plan(&p));
}

/* "F" a complete version, "d" a delta without its checkpoint, "D" with, "." gone; from v1 on.
 * The answer: "F", "D" stay, "d" only the delta stays, "f" of D only the checkpoint, "-" goes. */
static void retain(const char *there, int64_t committed, int64_t keep, const char *wanted)
{
    DeltaKept kept[32];
    char got[32] = "";
    int count = 0;
    for (int i = 0; there[i]; i++) {
        if (there[i] != '.') {
            kept[count++] = (DeltaKept){.version = i + 1, .dir = there[i] != 'd',
                                        .delta = there[i] != 'F'};
        }
    }
    delta_retain(kept, count, committed, keep);
    for (int i = 0, at = 0; there[i]; i++) {
        const DeltaKept *k = there[i] == '.' ? NULL : &kept[at++];
        got[i] = !k                            ? '.'
                 : k->keep_dir && k->keep_delta ? 'D'
                 : k->keep_dir && !k->delta     ? 'F'
                 : k->keep_dir                  ? 'f'
                 : k->keep_delta                ? 'd'
                                                : '-';
    }
    CHECK_STR(got, wanted);
}

static void test_retention(void)
{
    retain("FFFFF", 5, 2, "---FF");      /* without deltas: the newest */
    retain("FD", 2, 4, "FD");
    retain("FDD", 3, 4, "FdD");          /* v2 can be built, v3 serves */
    retain("FddD", 4, 2, "FddD");        /* v3 and v4 stand on v1 */
    retain("FddDFdD", 7, 3, "----FdD");  /* the old chain is needed no longer */
    retain("FdDF", 4, 2, "FddF");
    retain("FdDF", 4, 1, "---F");
    retain("FdD.F", 5, 3, "Fdd.F");      /* v4 was refused and removed */
    retain("FdD.DF", 6, 3, "---.fF");    /* a delta without its base: the checkpoint stays */
    retain("FDDFF", 3, 2, "FdDFF");      /* back at v3: what came later may be wanted again */
    retain("", 3, 2, "");
}

/* Whatever is there: each version that was loadable and is to be kept is loadable afterwards. */
static bool loadable(const DeltaKept *kept, int count, int64_t version, bool after)
{
    bool first = true;
    for (int i = count - 1; i >= 0; i--) {
        bool dir = after ? kept[i].keep_dir : kept[i].dir;
        bool link = after ? kept[i].keep_delta : kept[i].delta;
        if (kept[i].version != version) {
            continue;
        }
        if (dir && (first || !kept[i].delta)) {
            return true;
        }
        if (!link) {
            return false;
        }
        first = false;
        version--; /* a puller goes back over deltas to the next complete version */
    }
    return false;
}

static void test_what_was_loadable_stays_so(void)
{
    Rng rng;
    rng_seed(&rng, 11);
    for (int turn = 0; turn < 20000; turn++) {
        DeltaKept kept[16];
        int count = 0;
        for (int64_t v = 1; v <= 16; v++) {
            unsigned what = (unsigned)rng_below(&rng, 8);
            if (what > 0) {
                kept[count++] = (DeltaKept){.version = v, .dir = what < 4, .delta = what > 2};
            }
        }
        int64_t committed = 1 + (int64_t)rng_below(&rng, 16);
        int64_t keep = 1 + (int64_t)rng_below(&rng, 5);
        delta_retain(kept, count, committed, keep);
        for (int i = 0; i < count; i++) {
            int64_t v = kept[i].version;
            bool lost = v > committed - keep && loadable(kept, count, v, false) &&
                        !loadable(kept, count, v, true);
            bool bare = v >= committed && kept[i].dir && !kept[i].keep_dir;
            if (lost || bare) {
                CHECK_I64(v, -1);
                return;
            }
        }
    }
}

int main(void)
{
    RUN(test_plan);
    RUN(test_retention);
    RUN(test_what_was_loadable_stays_so);
    return test_end();
}
