#include "core/app/run_flags.h"

#include "core/base/json.h"
#include "tests/harness.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* A launch line as slime's examples write it: model, rollout, eval, performance, algorithm,
 * optimizer and SGLang flags; only what has a meaning here is used, the rest is named. */
static char *const slime_line[] = {
    "run", "--swiglu", "--num-layers", "28", "--hidden-size", "1024", "--disable-bias-linear",
    "--normalization", "RMSNorm", "--norm-epsilon", "1e-6", "--rotary-base", "1000000",
    "--hf-checkpoint", "/models/Qwen3-0.6B", "--ref-load", "/models/Qwen3-0.6B_torch_dist",
    "--prompt-data", "/data/gsm8k/train.jsonl", "--input-key", "messages", "--label-key", "label",
    "--apply-chat-template", "--rollout-shuffle", "--rm-type", "math", "--num-rollout", "3000",
    "--rollout-batch-size", "32", "--n-samples-per-prompt", "8", "--rollout-max-response-len",
    "1024", "--rollout-temperature", "0.8", "--global-batch-size", "256", "--balance-data",
    "--eval-interval", "20", "--eval-prompt-data", "gsm8k", "/data/gsm8k/test.jsonl",
    "--n-samples-per-eval-prompt", "1", "--eval-top-p", "0.7",
    "--tensor-model-parallel-size", "1", "--sequence-parallel", "--use-dynamic-batch-size",
    "--max-tokens-per-gpu", "9216", "--advantage-estimator", "grpo", "--use-kl-loss",
    "--kl-loss-coef", "0.00", "--kl-loss-type", "low_var_kl", "--entropy-coef", "0.00",
    "--eps-clip", "0.2", "--eps-clip-high", "0.28", "--optimizer", "adam", "--lr", "1e-6",
    "--lr-decay-style", "constant", "--weight-decay", "0.1", "--adam-beta1", "0.9",
    "--adam-beta2", "0.98", "--sglang-mem-fraction-static", "0.7", "--sglang-enable-metrics",
    "--wandb-key", "s3cret", "--use-wandb", "--rollout-external-engine-addrs", "h1:30000",
    "h2:30000", NULL};

static int count_words(char *const *words)
{
    int n = 0;
    while (words[n]) {
        n++;
    }
    return n;
}

static void test_slime_line(void)
{
    RunFlags f;
    Fault fault = {0};
    char **argv = (char **)(uintptr_t)slime_line;
    Err err = run_flags_parse(&f, count_words(slime_line), argv, &fault);
    CHECK_I64(err, ERR_OK);
    CHECK_STR(fault.sentence, "");
    CHECK_STR(f.rm_type, "math");
    CHECK_I64(f.n_samples_per_prompt, 8);
    CHECK_I64(f.engine_addrs.count, 2);
    CHECK_I64(f.eval_prompt_data.count, 2);
    CHECK_NEAR(f.eps_clip_high, 0.28, 1e-12);
    CHECK_NEAR(f.adam_beta2, 0.98, 1e-12);
    CHECK(f.use_kl_loss && f.num_rollout_given && !f.start_given && f.eval_top_p_given);
    const char *names = text_c(&f.ignored_names);
    CHECK(strstr(names, "--sglang-") == NULL); /* they are for the engines */
    CHECK_STR(text_c(&f.sglang.names), "--sglang-mem-fraction-static, --sglang-enable-metrics");
    CHECK_I64(f.sglang.setting_count, 2);
    CHECK_STR(f.sglang.settings[0].name, "mem_fraction_static");
    CHECK_STR(f.sglang.settings[0].value, "0.7");
    CHECK_STR(f.sglang.settings[1].name, "enable_metrics");
    CHECK_STR(f.sglang.settings[1].value, "true");
    CHECK(strstr(names, "--apply-chat-template") != NULL);
    CHECK(strstr(names, "--rm-type") == NULL);
    run_flags_free(&f);
}

/* IcePop has no flag in slime; a function of somebody's own is named as not used. */
static void test_icepop(void)
{
    static const char *const lines[][4] = {
        {"run", "--use-tis", "--custom-tis-function-path",
         "slime.backends.megatron_utils.loss.icepop_function"},
        {"run", "--use-tis", "--custom-tis-function-path", "mine.weights"}};
    for (int own = 0; own < 2; own++) {
        RunFlags f;
        Fault fault = {0};
        CHECK_I64(run_flags_parse(&f, 4, (char **)(uintptr_t)lines[own], &fault), ERR_OK);
        CHECK_I64(run_flags_icepop(&f), own == 0);
        CHECK_STR(text_c(&f.ignored_names), own ? "--custom-tis-function-path" : "");
        run_flags_free(&f);
    }
}

static void test_defaults(void)
{
    char *argv[] = {"run", NULL};
    RunFlags f;
    Fault fault = {0};
    CHECK_I64(run_flags_parse(&f, 1, argv, &fault), ERR_OK);
    CHECK_I64(f.n_samples_per_prompt, 1); /* slime-semantics 4.1 */
    CHECK_I64(f.rollout_seed, 42);
    CHECK_I64(f.seed, 1234);
    CHECK_I64(f.concurrency, 512);
    CHECK_I64(f.rollout_top_k, -1);
    CHECK_NEAR(f.lr, 1e-6, 0);
    CHECK_NEAR(f.eps_clip, 0.2, 0);
    CHECK_NEAR(f.opsm_delta, 1e-4, 0);
    CHECK_STR(f.input_key, "input");
    CHECK_STR(f.estimator, "grpo");
    run_flags_free(&f);
}

static void test_errors(void)
{
    static const struct {
        const char *word, *value, *says;
    } cases[] = {
        {"--rollout-batchsize", "4", "--rollout-batchsize"},
        {"--rollout-top-p", "1.5", "--rollout-top-p"},
        {"--num-rollout", "many", "--num-rollout"},
        {"--local-engines", "-3", "--local-engines"},
        {"word", NULL, "word"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *argv[] = {"run", (char *)(uintptr_t)cases[i].word,
                        (char *)(uintptr_t)cases[i].value, NULL};
        RunFlags f;
        Fault fault = {0};
        CHECK_I64(run_flags_parse(&f, cases[i].value ? 3 : 2, argv, &fault), ERR_ARG);
        CHECK(strstr(fault.sentence, cases[i].says) != NULL);
        run_flags_free(&f);
    }
    char *near[] = {"run", "--rollout-batchsize", "4", NULL};
    RunFlags f;
    Fault fault = {0};
    CHECK_I64(run_flags_parse(&f, 3, near, &fault), ERR_ARG);
    CHECK(strstr(fault.hint, "--rollout-batch-size") != NULL);
    run_flags_free(&f);
}

/* What the log keeps: no secret, whatever way it was written, and every used flag. */
static void test_stored(void)
{
    char **argv = (char **)(uintptr_t)slime_line;
    int argc = count_words(slime_line);
    Text text;
    text_init(&text, 1 << 20);
    run_flags_argv_json(argc, argv, &text);
    CHECK(strstr(text_c(&text), "s3cret") == NULL);
    CHECK(strstr(text_c(&text), "\"--wandb-key\",\"***\"") != NULL);
    char *joined[] = {"run", "--wandb-key=s3cret", "--sglang-api-key=k", "--lr", "1e-5", NULL};
    text_clear(&text);
    run_flags_argv_json(5, joined, &text);
    CHECK_STR(text_c(&text), "[\"run\",\"--wandb-key=***\",\"--sglang-api-key=***\",\"--lr\","
                             "\"1e-5\"]");
    RunFlags f;
    Fault fault = {0};
    CHECK_I64(run_flags_parse(&f, argc, argv, &fault), ERR_OK);
    text_clear(&text);
    run_flags_config_json(&f, &text);
    cJSON *config = NULL;
    CHECK_I64(json_parse(text_str(&text), 1 << 20, "config", &config, &fault), ERR_OK);
    CHECK_I64(json_i64(config, "rollout-batch-size", 0), 32);
    CHECK_STR(json_string(config, "rm-type", ""), "math");
    CHECK_I64(cJSON_GetArraySize(json_get(config, "rollout-external-engine-addrs")), 2);
    CHECK(strstr(text_c(&text), "s3cret") == NULL);
    CHECK_STR(json_string(json_get(config, "sglang"), "mem_fraction_static", ""), "0.7");
    cJSON_Delete(config);
    run_flags_free(&f);
    text_free(&text);
}

static void test_engine_command(void)
{
    char *argv[] = {"run", "--engine-cmd", "sglang", "--sglang-mem-fraction-static=0.5",
                    "--sglang-cuda-graph-bs", "1", "2", "--sglang-router-ip", "10.0.0.1",
                    "--sglang-router-port", "3000", "--sglang-router-policy", "random", NULL};
    static const char *const expected[] = {"python3", "-m", "sglang.launch_server", "--model-path",
                                           "/m", "--mem-fraction-static", "0.5",
                                           "--cuda-graph-bs", "1", "2"};
    RunFlags f;
    Fault fault = {0};
    char **words = NULL;
    CHECK_I64(run_flags_parse(&f, 13, argv, &fault), ERR_OK);
    CHECK_STR(f.router_ip, "10.0.0.1");
    CHECK_I64(f.router_port, 3000);
    CHECK_STR(text_c(&f.ignored_names), "--sglang-router-policy");
    CHECK_STR(f.sglang.settings[1].value, "1 2");
    CHECK_I64(engine_command_make(f.engine_cmd, "/m", &f.sglang, &words, &fault), ERR_OK);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        CHECK_STR(words[i], expected[i]);
    }
    CHECK(words[sizeof expected / sizeof *expected] == NULL);
    engine_command_free(words);
    CHECK_I64(engine_command_make("  ./serve   --x  ", "/m", &f.sglang, &words, &fault), ERR_OK);
    CHECK_STR(words[0], "./serve");
    CHECK_STR(words[1], "--x");
    engine_command_free(words);
    CHECK_I64(engine_command_make("  ", "/m", &f.sglang, &words, &fault), ERR_ARG);
    run_flags_free(&f);
}

/* What the run sets itself, and keys, which every list of processes would show. */
static void test_engine_settings_refused(void)
{
    static const char *const words[] = {"--sglang-host=0.0.0.0", "--sglang-port=1",
                                        "--sglang-model-path=/x", "--sglang-api-key=k1",
                                        "--sglang-admin-api-key=k1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char *argv[] = {"run", (char *)(uintptr_t)words[i], NULL};
        RunFlags f;
        Fault fault = {0};
        CHECK_I64(run_flags_parse(&f, 2, argv, &fault), ERR_ARG);
        CHECK(strncmp(fault.sentence, words[i], strcspn(words[i], "=")) == 0);
        CHECK(strstr(fault.sentence, "k1") == NULL && fault.hint[0] != '\0');
        run_flags_free(&f);
    }
}

static void test_keys(void)
{
    char path[] = "/tmp/rolltop-key-XXXXXX";
    int fd = mkstemp(path);
    Fault fault = {0};
    char *key = NULL;
    unsetenv("SGLANG_API_KEY");
    unsetenv("SGLANG_API_KEY_FILE");
    CHECK_I64(engine_key_read("SGLANG_API_KEY", &key, &fault), ERR_OK);
    CHECK(key == NULL);
    CHECK(fd >= 0 && write(fd, " s3cret\n", 8) == 8);
    setenv("SGLANG_API_KEY_FILE", path, 1);
    CHECK_I64(engine_key_read("SGLANG_API_KEY", &key, &fault), ERR_OK);
    CHECK_STR(key, "s3cret");
    free(key);
    CHECK_I64(fchmod(fd, 0644), 0);
    CHECK_I64(engine_key_read("SGLANG_API_KEY", &key, &fault), ERR_ARG);
    CHECK(key == NULL && strstr(fault.sentence, path) != NULL);
    CHECK(strstr(fault.sentence, "s3cret") == NULL);
    setenv("SGLANG_API_KEY", "other", 1); /* the variable itself wins */
    CHECK_I64(engine_key_read("SGLANG_API_KEY", &key, &fault), ERR_OK);
    CHECK_STR(key, "other");
    free(key);
    close(fd);
    unlink(path);
}

int main(void)
{
    RUN(test_slime_line);
    RUN(test_icepop);
    RUN(test_defaults);
    RUN(test_errors);
    RUN(test_stored);
    RUN(test_engine_command);
    RUN(test_engine_settings_refused);
    RUN(test_keys);
    return test_end();
}
