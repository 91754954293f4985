/* The batch of a step, as it was trained, out of the log. */
#include "tests/harness.h"
#include "tests/store/scene.h"

#include <math.h>

static char *path;

static Store *opened(void)
{
    StoreConfig config = {0};
    Store *store = NULL;
    CHECK_I64(store_open(path, &config, &store, NULL), ERR_OK);
    return store;
}

static Err batch_of(int64_t step, BatchView *out, Fault *fault, Arena **arena, double *norm)
{
    View *view = NULL;
    *arena = arena_new(1 << 20);
    CHECK_I64(view_open(path, &view, NULL), ERR_OK);
    Err err = view_batch(view, step, *arena, out, fault);
    *norm = view_metric(view, step, "train/grad_norm");
    view_close(view);
    return err;
}

static void the_batch_that_was_trained(void)
{
    Store *store = opened();
    scene_step_begin(store, 0, 1);
    /* A rollout that failed: two samples of it had been accepted. The one after it gave the batch,
     * with an attempt that was refused on the way. */
    scene_sample(store, 1, 0, 1, 2, FATE_ACCEPTED, 1);
    scene_sample(store, 2, 0, 1, 2, FATE_ACCEPTED, 1);
    scene_sample(store, 5, 0, 3, 4, FATE_ACCEPTED, 1);
    scene_sample(store, 6, 0, 3, 4, FATE_REFUSED, 1);
    scene_sample(store, 8, 0, 3, 4, FATE_ACCEPTED, 1);
    scene_sample(store, 7, 0, 3, 4, FATE_ACCEPTED, 1);
    scene_sample(store, 6, 0, 5, 6, FATE_ACCEPTED, 2);
    MetricFact norm = {.step = 0, .t_us = AT(6), .name = "train/grad_norm", .value = 0.1};
    store_put_metric(store, &norm);
    norm.value = 0.30000000000000004;
    store_put_metric(store, &norm);
    scene_step_end(store, 0, 7, (Val){0});
    scene_step_begin(store, 1, 8);
    scene_sample(store, 9, 1, 8, 9, FATE_ACCEPTED, 1);
    store_close(store);
    BatchView batch;
    Arena *arena;
    double seen;
    CHECK_I64(batch_of(0, &batch, NULL, &arena, &seen), ERR_OK);
    CHECK_I64(batch.count, 4);
    for (size_t i = 0; i < batch.count; i++) {
        const BatchRow *row = &batch.rows[i];
        CHECK_I64(row->sample, 5 + (int64_t)i);
        CHECK(row->reward == 0.25 * (double)(row->sample % 4));
        CHECK_I64(row->prompt_count, 3);
        CHECK_I64(row->prompt[2], 3);
        CHECK_I64(row->token_count, 4);
        CHECK_I64(row->tokens[3], 8);
        CHECK(row->logprobs[3] == -0.4f);
    }
    CHECK(seen == 0.30000000000000004);
    arena_free(arena);
}

static void what_is_not_whole(void)
{
    BatchView batch;
    Arena *arena;
    double seen;
    Fault fault = {0};
    CHECK_I64(batch_of(1, &batch, &fault, &arena, &seen), ERR_NOT_FOUND); /* not ended */
    CHECK(strstr(fault.sentence, "step 1") && isnan(seen) && batch.count == 0);
    arena_free(arena);
    Store *store = opened();
    scene_step_end(store, 1, 10, (Val){0}); /* of four samples the log has one */
    scene_step_begin(store, 2, 11);
    for (int64_t sample = 20; sample < 25; sample++) { /* and here one is missing in between */
        scene_sample(store, sample, 2, 11, sample == 22 ? 0 : 12, FATE_ACCEPTED, 1);
    }
    scene_step_end(store, 2, 13, (Val){0});
    store_close(store);
    for (int64_t step = 1; step <= 3; step++) {
        fault_clear(&fault);
        CHECK_I64(batch_of(step, &batch, &fault, &arena, &seen), ERR_NOT_FOUND);
        CHECK(strstr(fault.sentence, "does not hold all samples") != NULL);
        arena_free(arena);
    }
}

int main(void)
{
    char *dir = scene_dir();
    path = xasprintf("%s/run.db", dir);
    RUN(the_batch_that_was_trained);
    RUN(what_is_not_whole);
    free(path);
    scene_remove(dir);
    return test_end();
}
