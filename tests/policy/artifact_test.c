#include "tests/harness.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "core/model/safetensors.h"
#include "core/model/weights.h"
#include "core/policy/artifact.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Model {
    ModelConfig config;
    float **values;
    StWriteTensor *tensors;
    ModelTensorSpec *specs;
    int count;
} Model;

static ModelConfig small_config(int vocab)
{
    return (ModelConfig){.arch = MODEL_QWEN3, .layers = 2, .hidden = 32, .heads = 4,
                         .kv_heads = 2, .head_dim = 8, .ffn = 64, .vocab = vocab,
                         .max_positions = 128, .rms_eps = 1e-6f, .rope_theta = 1e6, .tied = true,
                         .dtype = MODEL_F32, .bos = -1, .eos = {1}, .eos_count = 1};
}

static void model_make(Model *m, ModelConfig config)
{
    Rng rng;
    rng_seed(&rng, 3);
    m->config = config;
    m->count = model_tensor_count(&config);
    m->values = xcalloc((size_t)m->count, sizeof *m->values);
    m->tensors = xcalloc((size_t)m->count, sizeof *m->tensors);
    m->specs = xcalloc((size_t)m->count, sizeof *m->specs);
    for (int i = 0; i < m->count; i++) {
        model_tensor_spec(&config, i, &m->specs[i]);
        StWriteTensor *t = &m->tensors[i];
        size_t n = 1;
        *t = (StWriteTensor){.name = m->specs[i].name, .dtype = ST_F32, .rank = m->specs[i].rank};
        for (int d = 0; d < t->rank; d++) {
            t->shape[d] = m->specs[i].shape[d];
            n *= (size_t)t->shape[d];
        }
        m->values[i] = xcalloc(n, sizeof(float));
        for (size_t k = 0; k < n; k++) {
            m->values[i][k] = (float)rng_normal(&rng) * 0.02f;
        }
        t->data = m->values[i];
    }
}

static void model_drop(Model *m)
{
    for (int i = 0; i < m->count; i++) {
        free(m->values[i]);
    }
    free(m->values);
    free(m->tensors);
    free(m->specs);
}

static void model_write(const Model *m, const char *dir, int count)
{
    Fault fault = {0};
    char *path = fs_join(dir, "model.safetensors");
    CHECK_I64(model_config_save(&m->config, dir, &fault), ERR_OK);
    CHECK_I64(st_write(path, m->tensors, (size_t)count, NULL, &fault), ERR_OK);
    CHECK_STR(fault.sentence, "");
    free(path);
}

static void expect(const char *dir, const Artifact *previous, double jump, Err want,
                   const char *words)
{
    Artifact a;
    Fault fault = {0};
    CHECK_I64(artifact_check(dir, previous, jump, &a, &fault), want);
    if (strstr(fault.sentence, words) == NULL) {
        fprintf(stderr, "\"%s\" lacks \"%s\"\n", fault.sentence, words);
    }
    CHECK(strstr(fault.sentence, words) != NULL);
    CHECK(want == ERR_OK || a.norms == NULL);
    artifact_free(&a);
}

static void good_and_bad(void)
{
    char dir[] = "/tmp/rolltop-artifact-XXXXXX";
    Model m;
    Artifact first;
    Fault fault = {0};
    CHECK(mkdtemp(dir) != NULL);
    model_make(&m, small_config(300));
    model_write(&m, dir, m.count);
    CHECK_I64(artifact_check(dir, NULL, 0, &first, &fault), ERR_OK);
    CHECK_I64(first.tensors, m.count);
    CHECK_I64(first.bytes, model_parameter_count(&m.config) * 4);
    double sum = 0.0;
    for (int64_t k = 0; k < m.specs[0].shape[0] * m.specs[0].shape[1]; k++) {
        sum += (double)m.values[0][k] * (double)m.values[0][k];
    }
    CHECK_NEAR(first.norms[0], sqrt(sum), 1e-12);

    Weights *weights = NULL; /* the engine must call the same policy by the same name */
    CHECK_I64(weights_load(dir, MODEL_F32, &weights, &fault), ERR_OK);
    CHECK_STR(weights != NULL ? weights_digest(weights) : NULL, first.digest);
    weights_unref(weights);

    m.values[1][3] = NAN;
    model_write(&m, dir, m.count);
    expect(dir, &first, 0, ERR_NUMERIC, m.specs[1].name);
    expect(dir, &first, 0, ERR_NUMERIC, "NaN at element 3");
    m.values[1][3] = -INFINITY;
    model_write(&m, dir, m.count);
    expect(dir, &first, 0, ERR_NUMERIC, "infinity at element 3");
    m.values[1][3] = 100.0f; /* finite, but far from what it was */
    model_write(&m, dir, m.count);
    expect(dir, NULL, 0, ERR_OK, "");
    expect(dir, &first, 0, ERR_NUMERIC, "more than 4 times");
    expect(dir, &first, 1e9, ERR_OK, "");
    size_t elements = (size_t)m.specs[1].shape[0];
    elements *= m.specs[1].rank == 2 ? (size_t)m.specs[1].shape[1] : 1;
    memset(m.values[1], 0, elements * sizeof(float)); /* a collapse */
    model_write(&m, dir, m.count);
    expect(dir, &first, 0, ERR_NUMERIC, "norm of tensor");
    model_write(&m, dir, m.count - 1);
    expect(dir, NULL, 0, ERR_FORMAT, m.specs[m.count - 1].name);
    model_drop(&m);
    model_make(&m, small_config(301));
    model_write(&m, dir, m.count);
    expect(dir, &first, 0, ERR_FORMAT, "another shape");
    model_drop(&m);
    artifact_free(&first);
    CHECK_I64(fs_remove_tree(dir, &fault), ERR_OK);
    expect("/nonexistent", NULL, 0, ERR_NOT_FOUND, "/nonexistent");
}

typedef struct Toucher {
    char *path;
    _Atomic bool stop;
    _Atomic int64_t times;
} Toucher;

static void *touch(void *user)
{
    Toucher *t = user;
    while (!t->stop) {
        int64_t n = ++t->times;
        struct timespec at[2] = {{.tv_sec = 1000, .tv_nsec = n}, {.tv_sec = 1000, .tv_nsec = n}};
        (void)utimensat(AT_FDCWD, t->path, at, 0);
    }
    return NULL;
}

/* A checkpoint that somebody still writes, a shard that is missing, a link that leads nowhere. */
static void not_whole(void)
{
    char dir[] = "/tmp/rolltop-artifact-XXXXXX";
    Model m;
    Fault fault = {0};
    CHECK(mkdtemp(dir) != NULL);
    model_make(&m, small_config(60000));
    model_write(&m, dir, m.count);
    Toucher toucher = {.path = fs_join(dir, "model.safetensors")};
    pthread_t thread;
    CHECK_I64(pthread_create(&thread, NULL, touch, &toucher), 0);
    while (toucher.times < 2) {
        sched_yield();
    }
    bool seen = false; /* on a busy machine the other thread may not run during one check */
    for (int i = 0; i < 1000 && !seen; i++) {
        Artifact a;
        fault_clear(&fault);
        seen = artifact_check(dir, NULL, 0, &a, &fault) == ERR_STATE;
        artifact_free(&a);
    }
    CHECK(seen);
    CHECK(strstr(fault.sentence, "changed while they were read") != NULL);
    fault_clear(&fault);
    toucher.stop = true;
    CHECK_I64(pthread_join(thread, NULL), 0);
    expect(dir, NULL, 0, ERR_OK, "");

    CHECK_I64(unlink(toucher.path), 0);
    CHECK_I64(symlink("model.safetensors", toucher.path), 0);
    expect(dir, NULL, 0, ERR_NOT_FOUND, "model.safetensors");
    CHECK_I64(unlink(toucher.path), 0);
    static const char index[] = "{\"weight_map\": {\"model.norm.weight\": \"part-2.safetensors\"}}";
    char *path = fs_join(dir, "model.safetensors.index.json");
    CHECK_I64(fs_write_atomic(path, index, sizeof index - 1, &fault), ERR_OK);
    expect(dir, NULL, 0, ERR_NOT_FOUND, "part-2.safetensors");
    free(path);
    free(toucher.path);
    model_drop(&m);
    CHECK_I64(fs_remove_tree(dir, &fault), ERR_OK);
}

static void large_with_threads(void)
{
    char dir[] = "/tmp/rolltop-artifact-XXXXXX";
    Model m;
    Artifact a;
    Fault fault = {0};
    CHECK(mkdtemp(dir) != NULL);
    model_make(&m, small_config(600000)); /* 77 MB: over the bound for a second thread */
    model_write(&m, dir, m.count);
    int64_t from = clock_mono_us();
    CHECK_I64(artifact_check(dir, NULL, 0, &a, &fault), ERR_OK);
    printf("%lld MB checked in %.0f ms\n", (long long)(a.bytes / 1000000),
           (double)(clock_mono_us() - from) / 1e3);
    CHECK(a.bytes > 64 << 20);
    m.values[m.count - 1][0] = NAN;
    model_write(&m, dir, m.count);
    expect(dir, &a, 0, ERR_NUMERIC, m.specs[m.count - 1].name);
    artifact_free(&a);
    model_drop(&m);
    CHECK_I64(fs_remove_tree(dir, &fault), ERR_OK);
}

int main(void)
{
    RUN(good_and_bad);
    RUN(not_whole);
    RUN(large_with_threads);
    return test_end();
}
