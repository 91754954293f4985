/* Tensors a few at a time: each once, failures told, and a version of many tensors comes out the
 * same as one after the other. */
#include "core/policy/delta_each.h"

#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/base/str.h"
#include "core/model/safetensors.h"
#include "core/policy/delta.h"
#include "tests/harness.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum { MANY = 500, TENSORS = 13, FLOATS = 1 << 18 };

static char root[] = "/tmp/rolltop-delta-each-XXXXXX";

typedef struct Calls {
    _Atomic int times[MANY];
    size_t bad, worse; /* MANY: none */
} Calls;

static Err count_call(void *context, DeltaScratch *scratch, size_t at, Fault *fault)
{
    CHECK(scratch != NULL);
    Calls *calls = context;
    atomic_fetch_add(&calls->times[at], 1);
    if (at == calls->bad || at == calls->worse) {
        return fault_set(fault, ERR_STATE, NULL, "tensor %zu is bad", at);
    }
    return ERR_OK;
}

static void test_each_is_called_once(void)
{
    static const size_t scale[] = {0, 1, 1 << 20}; /* on one thread, on one, on two */
    for (int s = 0; s < 3; s++) {
        size_t sizes[MANY];
        Calls *calls = xcalloc(1, sizeof *calls);
        calls->bad = calls->worse = MANY;
        for (size_t i = 0; i < MANY; i++) {
            sizes[i] = scale[s] * (i * 7919 % 13);
        }
        CHECK_I64(delta_each(sizes, MANY, count_call, calls, NULL), ERR_OK);
        CHECK_I64(delta_each(sizes, 0, count_call, calls, NULL), ERR_OK);
        int once = 0;
        for (size_t i = 0; i < MANY; i++) {
            once += calls->times[i] == 1;
        }
        CHECK_I64(once, MANY);
        free(calls);
    }
}

static void test_a_failure_ends_it(void)
{
    for (size_t scale = 0; scale <= 1 << 20; scale += 1 << 20) {
        size_t sizes[MANY];
        Calls *calls = xcalloc(1, sizeof *calls);
        Fault fault = {0};
        calls->bad = 0; /* the first to be taken */
        calls->worse = MANY;
        for (size_t i = 0; i < MANY; i++) {
            sizes[i] = scale * (MANY - i);
        }
        CHECK_I64(delta_each(sizes, MANY, count_call, calls, &fault), ERR_STATE);
        CHECK_STR(fault.sentence, "tensor 0 is bad");
        calls->worse = 3;
        CHECK_I64(delta_each(sizes, MANY, count_call, calls, &fault), ERR_STATE);
        CHECK_STR(fault.sentence, "tensor 0 is bad"); /* the first fault stays */
        for (size_t i = 0; i < MANY; i++) {
            CHECK(calls->times[i] <= 2);
        }
        free(calls);
    }
}

static char *write_model(const char *name, float *const data[TENSORS])
{
    char *dir = fs_join(root, name);
    char *path = fs_join(dir, "model.safetensors");
    static char names[TENSORS][16];
    StWriteTensor tensors[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        (void)str_format(names[i], sizeof names[i], "tensor.%d", i);
        tensors[i] = (StWriteTensor){.name = names[i], .dtype = ST_F32, .rank = 1,
                                     .shape = {FLOATS + i * 100}, .data = data[i]};
    }
    CHECK(fs_mkdirs(dir, 0755, NULL) == ERR_OK);
    CHECK(st_write(path, tensors, TENSORS, NULL, NULL) == ERR_OK);
    free(path);
    return dir;
}

static bool holds(const char *dir, float *const data[TENSORS])
{
    StSet *set = NULL;
    bool same = st_set_open(dir, &set, NULL) == ERR_OK && st_set_count(set) == TENSORS;
    for (int i = 0; i < TENSORS && same; i++) {
        char name[16];
        (void)str_format(name, sizeof name, "tensor.%d", i);
        const StTensor *tensor = st_set_find(set, name);
        void *bytes = tensor ? xcalloc(1, tensor->bytes) : NULL;
        same = bytes && st_read_bytes(tensor, 0, tensor->bytes, bytes) == ERR_OK
               && memcmp(bytes, data[i], tensor->bytes) == 0;
        free(bytes);
    }
    st_set_close(set);
    return same;
}

static void change(float *const data[TENSORS], Rng *rng)
{
    for (int i = 0; i < TENSORS; i++) {
        for (int k = 0; k < FLOATS && i % 4 != 3; k++) { /* some tensors stay as they are */
            data[i][k] += rng_below(rng, 100) == 0 ? 0.25F : 0.0F;
        }
    }
}

static void test_a_version_of_many_tensors(void)
{
    float *data[TENSORS];
    Rng rng;
    DeltaStats stats;
    int64_t applied = -1;
    Fault fault = {0};
    rng_seed(&rng, 5);
    for (int i = 0; i < TENSORS; i++) {
        data[i] = xcalloc(FLOATS + (size_t)i * 100, sizeof *data[i]);
        for (int k = 0; k < FLOATS; k++) {
            data[i][k] = (float)rng_normal(&rng);
        }
    }
    char *base = write_model("base", data);
    data[5][7] += 1.0F;
    char *other = write_model("other", data);
    data[5][7] -= 1.0F;
    change(data, &rng);
    char *new = write_model("new", data);
    char *source = fs_join(root, "source");
    char *local = fs_join(root, "local");
    char *wrong = fs_join(root, "wrong");
    CHECK_I64(delta_publish(base, new, source, 1, 0, DELTA_XOR, DELTA_SUM_XXH3_128, NULL, &stats,
                            NULL), ERR_OK);
    CHECK_I64(stats.tensors, TENSORS);
    CHECK_I64(stats.changed_tensors, 10);
    CHECK_I64(delta_pull(source, base, local, 1, &applied, NULL), ERR_OK);
    CHECK(holds(local, data));
    CHECK_I64(delta_pull(source, other, wrong, 1, &applied, &fault), ERR_STATE);
    CHECK(strstr(fault.sentence, "checksum mismatch of tensor tensor.5") != NULL);
    CHECK_I64(applied, 0);
    for (int i = 0; i < TENSORS; i++) {
        free(data[i]);
    }
    free(base);
    free(other);
    free(new);
    free(source);
    free(local);
    free(wrong);
}

int main(void)
{
    if (!mkdtemp(root)) {
        return 1;
    }
    RUN(test_each_is_called_once);
    RUN(test_a_failure_ends_it);
    RUN(test_a_version_of_many_tensors);
    (void)fs_remove_tree(root, NULL);
    return test_end();
}
