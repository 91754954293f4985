/* The client against the real child (this binary runs itself as `train`), and against children
 * that break every rule. */
#include "core/train/trainer.h"
#include "tests/harness.h"

#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/train/frame.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define MODEL ROLLTOP_TEST_DATA "/golden-qwen3/tied"
enum { SAMPLES = 4, LENGTH = 12 };

static char *root;

typedef struct Run {
    uv_loop_t loop;
    Trainer *trainer;
    int step, exits, replies;
    char how[FAULT_TEXT_MAX + 64], last_sentence[FAULT_TEXT_MAX], digest[64];
    Err last_err, why;
    double grad_norm;
    size_t scores;
    float score[LENGTH];
    bool kill_on_progress, free_in_reply, progressed;
    char *policy, *state;
} Run;

static int32_t tokens[SAMPLES][LENGTH];
static float logp[SAMPLES][LENGTH];
static TrainSample samples[SAMPLES];

static void samples_make(void)
{
    for (int i = 0; i < SAMPLES; i++) {
        for (int t = 0; t < LENGTH; t++) {
            tokens[i][t] = (i * 37 + t * 11) % 512;
            logp[i][t] = -6.0f;
        }
        samples[i] = (TrainSample){.tokens = tokens[i], .prompt_count = 4,
                                   .response_count = LENGTH - 4, .rollout_logp = logp[i],
                                   .reward = i % 2, .rollout_id = i};
    }
}

static TrainerConfig config_make(const char *dir)
{
    TrainerConfig config = trainer_config_default();
    config.load_dir = dir;
    config.dump_dir = root;
    config.adam.lr = 1e-3;
    config.max_tokens_per_pass = 512;
    config.loss.n_samples_per_prompt = 2;
    config.loss.rollout_batch_size = 2;
    return config;
}

static void on_reply(const TrainerReply *reply, void *user);

static void next(Run *run)
{
    const int32_t *rows[2] = {tokens[0], tokens[1]};
    const size_t counts[2] = {LENGTH, 5};
    Err err = ERR_OK;
    switch (run->step++) {
    case 0:
        err = trainer_train(run->trainer, 1, samples, SAMPLES, on_reply, run, NULL);
        break;
    case 1:
        err = trainer_score(run->trainer, rows, counts, 2, on_reply, run, NULL);
        break;
    case 2:
        err = trainer_publish(run->trainer, MODEL_BF16, run->policy, on_reply, run, NULL);
        break;
    case 3:
        err = trainer_save(run->trainer, run->state, on_reply, run, NULL);
        break;
    case 4:
        logp[2][3] = NAN;
        err = trainer_train(run->trainer, 2, samples, SAMPLES, on_reply, run, NULL);
        logp[2][3] = -6.0f;
        break;
    default:
        trainer_free(run->trainer);
        run->trainer = NULL;
        return;
    }
    CHECK_I64(err, ERR_OK);
    Fault fault = {0};
    CHECK_I64(trainer_save(run->trainer, run->state, on_reply, run, &fault), ERR_STATE);
    CHECK(strstr(fault.sentence, "while it is asked to") != NULL);
}

static void on_reply(const TrainerReply *reply, void *user)
{
    Run *run = user;
    run->replies++;
    run->last_err = reply->err;
    snprintf(run->last_sentence, sizeof run->last_sentence, "%s", reply->fault.sentence);
    CHECK(reply->took_us >= 0);
    for (int i = 0; i < reply->metric_count; i++) {
        if (strcmp(reply->metrics[i].name, "train/grad_norm") == 0) {
            run->grad_norm = reply->metrics[i].value;
        }
    }
    if (reply->logprobs) {
        run->scores = reply->logprob_count;
        memcpy(run->score, reply->logprobs, sizeof run->score);
    }
    if (reply->digest) {
        snprintf(run->digest, sizeof run->digest, "%s", reply->digest);
        CHECK_STR(reply->dir, run->policy);
        CHECK(reply->bytes > 2 * 94592);
    }
    if (reply->err && run->step < 5) {
        return; /* the failing runs look at it themselves */
    }
    next(run);
}

static void on_ready(void *user)
{
    next(user);
}

static void on_trainer_exit(const char *how, Err why, void *user)
{
    Run *run = user;
    run->exits++;
    run->why = why;
    snprintf(run->how, sizeof run->how, "%s", how);
    Fault fault = {0};
    CHECK_I64(trainer_save(run->trainer, "/tmp/x", NULL, NULL, &fault), ERR_STATE);
    trainer_free(run->trainer);
    run->trainer = NULL;
}

static void on_progress(const char *what, double share, void *user)
{
    Run *run = user;
    CHECK(what[0] != '\0' && share >= 0.0 && share <= 1.0);
    run->progressed = true;
}

static void run_role(const char *role, const TrainerConfig *config, Run *run)
{
    memset(run, 0, sizeof *run);
    run->policy = fs_join(root, "policy");
    run->state = fs_join(root, "state");
    uv_loop_init(&run->loop);
    const char *command[] = {"/proc/self/exe", role, "--channel-fd", "3", NULL};
    TrainerEvents events = {.on_ready = on_ready, .on_exit = on_trainer_exit,
                            .on_progress = on_progress, .user = run};
    Fault fault = {0};
    CHECK_I64(trainer_start(&run->loop, command, config, &events, &run->trainer, &fault), ERR_OK);
    CHECK_STR(fault.sentence, "");
    CHECK(trainer_pid(run->trainer) > 1);
    CHECK_I64(trainer_save(run->trainer, run->state, on_reply, run, NULL), ERR_STATE);
}

static void run_end(Run *run)
{
    uv_run(&run->loop, UV_RUN_DEFAULT);
    CHECK_I64(uv_loop_close(&run->loop), 0);
    free(run->policy);
    free(run->state);
}

static void whole_conversation(void)
{
    TrainerConfig config = config_make(MODEL);
    Run run;
    run_role("train", &config, &run);
    char *policy = xstrdup(run.policy);
    char *state = xstrdup(run.state);
    run_end(&run);
    CHECK_I64(run.replies, 5);
    CHECK_I64(run.exits, 0); /* freed by us, so nothing to tell */
    CHECK(run.grad_norm > 0.0);
    CHECK_I64(run.scores, LENGTH - 1 + 4);
    CHECK(run.score[0] < 0.0f);
    CHECK_I64(strlen(run.digest), DIGEST_TEXT - 1);
    CHECK_I64(run.last_err, ERR_NUMERIC);
    CHECK(strstr(run.last_sentence, "sample 2") != NULL);
    char *file = fs_join(policy, "model.safetensors");
    CHECK(fs_exists(file));
    free(file);
    file = fs_join(state, "optimizer.safetensors");
    CHECK(fs_exists(file));
    free(file);
    free(policy);
    free(state);
}

static void load_failure_is_told(void)
{
    TrainerConfig config = config_make("/nonexistent/model");
    Run run;
    run_role("train", &config, &run);
    run_end(&run);
    CHECK_I64(run.exits, 1);
    CHECK_I64(run.replies, 0);
    CHECK(strstr(run.how, "/nonexistent/model") != NULL);
    CHECK(run.why != ERR_NET && run.why != ERR_FORMAT);
}

/* The core has to know that it is the checkpoint, and not the trainer, that is damaged. */
static void damage_is_told_by_its_code(void)
{
    char dir[64] = "/tmp/rolltop-damaged-XXXXXX";
    CHECK(mkdtemp(dir) != NULL);
    char *seal = fs_join(dir, "state.json");
    TrainerConfig config = config_make(dir);
    static const char unread[] = "{\"files\":[{\"name\":\"state.json.d\",\"bytes\":1,"
                                 "\"xxh3\":\"00\"}]}";
    char *folder = fs_join(dir, "state.json.d");
    CHECK_I64(fs_mkdirs(folder, 0700, NULL), ERR_OK); /* nothing that could be read */
    for (int i = 0; i < 3; i++) {
        if (i < 2) {
            CHECK_I64(fs_write_atomic(seal, i ? unread : "{", i ? sizeof unread - 1 : 1, NULL),
                      ERR_OK);
        } else {
            CHECK_I64(remove(seal), 0);
            CHECK_I64(rename(folder, seal), 0);
        }
        Run run;
        run_role("train", &config, &run);
        run_end(&run);
        CHECK_I64(run.exits, 1);
        CHECK_I64(run.why, ERR_FORMAT);
        CHECK(strstr(run.how, seal) != NULL);
    }
    free(folder);
    free(seal);
    CHECK_I64(fs_remove_tree(dir, NULL), ERR_OK);
}

static void on_kill_time(uv_timer_t *timer)
{
    Run *run = timer->data;
    kill(trainer_pid(run->trainer), SIGKILL);
    uv_close((uv_handle_t *)timer, NULL);
}

static void death_is_answered(void)
{
    TrainerConfig config = config_make(MODEL);
    Run run;
    run_role("mute", &config, &run); /* greets, then never answers */
    uv_timer_t timer;
    uv_timer_init(&run.loop, &timer);
    timer.data = &run;
    uv_timer_start(&timer, on_kill_time, 300, 0);
    run_end(&run);
    CHECK_I64(run.replies, 1);
    CHECK_I64(run.last_err, ERR_NET);
    CHECK_I64(run.exits, 1);
    CHECK(strstr(run.how, "signal 9") != NULL);
    CHECK_I64(run.why, ERR_NET);
    CHECK(run.progressed);
}

static void last_words_are_heard(void)
{
    TrainerConfig config = config_make(MODEL);
    Run run;
    run_role("answer-and-die", &config, &run);
    run_end(&run);
    CHECK_I64(run.exits, 1);
    CHECK(run.replies >= 1 && run.grad_norm == 2.5);
}

static void rule_breakers(void)
{
    const char *const roles[] = {"garbage", "huge", "wrong-id", "wrong-type", "old-protocol",
                                 "bad-json", "deaf"};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        TrainerConfig config = config_make(MODEL);
        Run run;
        int64_t from = clock_mono_us();
        run_role(roles[i], &config, &run);
        run_end(&run);
        if (run.exits != 1) {
            fprintf(stderr, "role %s\n", roles[i]);
        }
        CHECK_I64(run.exits, 1);
        CHECK(run.how[0] != '\0');
        CHECK(clock_mono_us() - from < 60 * INT64_C(1000000)); /* not by its own end */
    }
}

/* ---- children ---- */

static void say(const char *head, size_t claim_tail)
{
    unsigned char prefix[FRAME_PREFIX];
    frame_prefix(strlen(head), claim_tail, prefix);
    ssize_t a = send(3, prefix, sizeof prefix, MSG_NOSIGNAL);
    ssize_t b = send(3, head, strlen(head), MSG_NOSIGNAL);
    if (a < 0 || b < 0) {
        exit(9);
    }
}

static void hear(void)
{
    char bytes[65536];
    if (read(3, bytes, sizeof bytes) <= 0) {
        exit(0);
    }
}

static int child_main(const char *role)
{
    static const char hello[] = "{\"type\":\"hello\",\"id\":0,\"protocol\":1}";
    child_die_with_parent();
    if (strcmp(role, "deaf") == 0) {
        return 4;
    }
    hear();
    if (strcmp(role, "garbage") == 0) {
        ssize_t n = write(3, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
        sleep(600);
        return n < 0;
    }
    if (strcmp(role, "huge") == 0) {
        say(hello, 0xf0000000u);
        sleep(600);
    }
    if (strcmp(role, "bad-json") == 0) {
        say("{\"type\":\"hello\"", 0);
        sleep(600);
    }
    if (strcmp(role, "old-protocol") == 0) {
        say("{\"type\":\"hello\",\"id\":0,\"protocol\":0}", 0);
        sleep(600);
    }
    say(hello, 0);
    hear();
    if (strcmp(role, "wrong-id") == 0) {
        say("{\"type\":\"trained\",\"id\":99,\"metrics\":{}}", 0);
    } else if (strcmp(role, "wrong-type") == 0) {
        say("{\"type\":\"published\",\"id\":1}", 0);
    } else if (strcmp(role, "answer-and-die") == 0) {
        say("{\"type\":\"trained\",\"id\":1,\"metrics\":{\"train/grad_norm\":2.5}}", 0);
        return 0;
    } else if (strcmp(role, "mute") == 0) {
        say("{\"type\":\"progress\",\"id\":1,\"what\":\"train\",\"share\":0.5}", 0);
    }
    sleep(600);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "train") == 0) {
        return trainer_child_main(argc - 1, argv + 1);
    }
    if (argc > 1) {
        return child_main(argv[1]);
    }
    char path[] = "/tmp/rolltop-trainer-XXXXXX";
    root = mkdtemp(path);
    if (!root) {
        printf("no temporary directory\n");
        return 1;
    }
    signal(SIGPIPE, SIG_IGN); /* as rolltop's main does: a child may die before it is greeted */
    samples_make();
    RUN(whole_conversation);
    RUN(load_failure_is_told);
    RUN(damage_is_told_by_its_code);
    RUN(death_is_answered);
    RUN(last_words_are_heard);
    RUN(rule_breakers);
    fs_remove_tree(root, NULL);
    return test_end();
}
