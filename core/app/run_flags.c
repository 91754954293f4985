#include "core/app/run_flags.h"

#include "core/base/json.h"
#include "core/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of slime and Megatron, without a meaning for the built-in trainer and local fleet. */
static const char *const ignored_switches[] = {
    "disable-rollout-global-dataset", "use-distributed-post", "apply-chat-template", "colocate",
    "offload", "offload-train",
    "offload-rollout", "use-fault-tolerance", "update-weight-disk-keep-files",
    "check-weight-update-equal", "release-train", "keep-old-actor", "group-rm", "log-passrate",
    "log-multi-turn", "get-mismatch-metrics", "use-routing-replay", "use-rollout-routing-replay",
    "disable-compute-advantages-and-returns", "use-rollout-entropy",
    "reset-optimizer-states", "use-stateless-adam", "use-dynamic-batch-size", "balance-data",
    "balance-by-flops", "async-save", "no-save-optim", "no-load-optim", "no-load-rng",
    "debug-rollout-only", "debug-train-only", "ci-test", "use-wandb", "use-tensorboard",
    "sequence-parallel", "accumulate-allreduce-grads-in-fp32", "attention-softmax-in-fp32",
    "swiglu", "group-query-attention", "qk-layernorm", "disable-bias-linear", "finetune",
    "add-qkv-bias", "untie-embeddings-and-output-weights", "use-rotary-position-embeddings",
    "no-rope-fusion", "use-distributed-optimizer", "bf16", "fp16", "optimizer-cpu-offload",
    "overlap-cpu-optimizer-d2h-h2d", "use-precision-aware-optimizer", "recompute-loss-function",
    "moe-token-drop-policy-none", "moe-grouped-gemm", "moe-permute-fusion", "no-check-for-nan",
    "calculate-logits-in-fp32", "use-cpu-initialization"};
static const char *const ignored_values[] = {
    "rollout-function-path", "eval-function-path", "custom-generate-function-path",
    "over-sampling-batch-size", "dynamic-sampling-filter-path", "buffer-filter-path",
    "rollout-sample-filter-path", "rollout-all-samples-process-path",
    "rollout-data-postprocess-path", "tool-key", "multimodal-keys", "apply-chat-template-kwargs",
    "data-source-path", "rollout-data-transport", "rollout-buffer-url",
    "fetch-trajectory-retry-times", "min-batch-collection-ratio", "rollout-task-type",
    "http-proxy", "custom-rollout-log-function-path", "custom-eval-rollout-log-function-path",
    "eval-config", "eval-max-prompt-len", "eval-min-new-tokens", "eval-tool-key",
    "eval-max-context-len", "actor-num-nodes", "actor-num-gpus-per-node", "rollout-num-gpus",
    "rollout-num-gpus-per-engine", "num-gpus-per-node", "sglang-config", "prefill-num-servers",
    "rollout-health-check-interval", "rollout-health-check-timeout",
    "rollout-health-check-first-wait", "update-weight-disk-dir",
    "update-weight-buffer-size", "update-weights-interval",
    "custom-update-weight-post-write-path", "rm-url", "custom-rm-path", "reward-key",
    "eval-reward-key", "custom-reward-post-process-path",
    "custom-convert-samples-to-train-data-path", "log-reward-category", "log-correct-samples",
    "custom-loss-function-path", "value-clip", "ref-ckpt-step", "ref-update-interval",
    "lambd", "opd-teacher-ckpt-step", "custom-advantage-function-path",
    "custom-pg-loss-reducer-function-path", "num-critic-only-steps", "megatron-config-path",
    "micro-batch-size", "log-probs-max-tokens-per-gpu", "save-hf", "save-debug-rollout-data",
    "load-debug-rollout-data", "load-debug-rollout-data-subsample", "save-debug-train-data",
    "dump-details", "load-forge-rollout-data", "custom-config-path", "train-backend",
    "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size",
    "expert-model-parallel-size", "expert-tensor-parallel-size", "recompute-granularity",
    "recompute-method", "recompute-num-layers", "attention-dropout", "hidden-dropout",
    "attention-backend", "optimizer", "lr-decay-style", "lr-warmup-iters", "lr-warmup-fraction",
    "min-lr", "lr-decay-iters", "num-layers", "hidden-size", "ffn-hidden-size",
    "num-attention-heads", "num-query-groups", "kv-channels", "vocab-size", "normalization",
    "norm-epsilon", "rotary-base", "rotary-percent", "position-embedding-type", "seq-length",
    "max-position-embeddings", "make-vocab-size-divisible-by", "distributed-timeout-minutes",
    "distributed-backend", "log-interval", "transformer-impl", "spec"};
static const char *const ignored_lists[] = {"rollout-sample-hook-path"};
/* Whole families that other programs read: --sglang-mem-fraction-static and the like. */
static const char *const foreign[] = {"sglang-", "router-", "wandb-", "tb-", "ci-", "moe-",
                                      "tensorboard-", "fp8-"};
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static void defaults(RunFlags *f)
{
    *f = (RunFlags){.publish_dtype = "auto", .disk_wait = "24h", .engine_threads = 1,
                    .keep_policies = 4,
                    .state_interval = 1, .startup_timeout = 120,
                    .stop_at_eval_reward = NAN, .norm_jump = 4.0, .input_key = "input",
                    .metadata_key = "metadata",
                    .n_samples_per_prompt = 1, .rollout_top_k = -1, .rollout_seed = 42,
                    .concurrency = 512, .temperature = 1.0, .top_p = 1.0,
                    .n_samples_per_eval_prompt = 1, .estimator = "grpo",
                    .loss_type = "policy_loss", .kl_loss_type = "k1", .eps_clip = 0.2,
                    .eps_clip_high = -1.0, .gamma = 1.0, .tis_clip = 2.0,
                    .opsm_delta = 1e-4, .opd_kl_coef = 1.0, .seed = 1234, .lr = 1e-6,
                    .clip_grad = 1.0,
                    .weight_decay = 0.01, .adam_beta1 = 0.9, .adam_beta2 = 0.999,
                    .adam_eps = 1e-8, .update_weight_mode = "full", .full_every = 10,
                    .update_weight_transport = "disk"};
    fleet_flags_defaults(&f->fleet);
    text_init(&f->ignored_names, 16384);
    engine_flags_init(&f->sglang);
}

#define S(n, field, value, words) {n, FLAG_STRING, &f->field, 0, 0, value, words, NULL}
#define B(n, field, words) {n, FLAG_SWITCH, &f->field, 0, 0, NULL, words, NULL}
#define I(n, field, low, high, words) {n, FLAG_INT, &f->field, low, high, "N", words, NULL}
#define D(n, field, low, high, words) {n, FLAG_DOUBLE, &f->field, low, high, "X", words, NULL}
#define L(n, field, value, words) {n, FLAG_LIST, &f->field, 0, 0, value, words, NULL}
#define BIG 1e15

static size_t specs_ours(RunFlags *f, FlagSpec *out)
{
    const FlagSpec specs[] = {
        S("log", log, "FILE", "the run's log (default: under the state directory)"),
        S("log-keep-age", log_keep_age, "AGE", "older rows go: 24h, 7d (all stay; docs/log.md)"),
        S("log-max-size", log_max_size, "SIZE", "the oldest rows go beyond it: 500M, 20G"),
        S("alert-rules", alert_rules, "FILE", "what raises alerts (`rolltop config alerts`)"),
        S("name", name, "NAME", "of the run, for people (default: run)"),
        S("run-id", run_id, "ID", "identifier of the run (default: NAME and time)"),
        B("headless", headless, "no console: one plain line per step"),
        B("resume", resume, "go on from the last durable step of --log"),
        I("local-engines", local_engines, 0, 64, "engines to start on this machine"),
        S("engine-cmd", engine_cmd, "COMMAND", "what to start as engines; sglang: SGLang's own"),
        I("engine-threads", engine_threads, 1, 256, "threads of each local engine (1)"),
        I("trainer-threads", trainer_threads, 0, 256, "threads of the trainer (all cores)"),
        B("engine-faults", engine_faults, "local engines open their fault route (tests)"),
        I("keep-policies", keep_policies, 1, 1000, "policy versions kept on disk (4)"),
        S("disk-wait", disk_wait, "AGE", "how long a policy or state that the disk refuses is "
          "tried again before the run ends (24h)"),
        I("state-interval", state_interval, 1, 1e6, "steps between the trainer's states (1)"),
        I("startup-timeout", startup_timeout, 1, 86400, "seconds for all parts to come up (120)"),
        S("publish-dtype", publish_dtype, "T", "of published policies: auto, f32, bf16"),
        S("rollout-url", rollout_url, "URL", "frontend for generation (DYNAMO_ROLLOUT_URL)"),
        S("eval-rm-type", eval_rm_type, "TYPE", "reward of evaluation (default: --rm-type)"),
        S("trainer", trainer, "PROGRAM", "another trainer that speaks the trainer protocol"),
        {"stop-at-eval-reward", FLAG_DOUBLE, &f->stop_at_eval_reward, 0, 0, "X",
         "end well once an evaluation reaches it", &f->stop_at_given},
        D("norm-jump", norm_jump, 1.0, 1e9, "largest growth of a tensor's norm per update (4)"),
    };
    memcpy(out, specs, sizeof specs);
    return COUNT(specs);
}

static size_t specs_rollout(RunFlags *f, FlagSpec *out)
{
    const FlagSpec specs[] = {
        S("hf-checkpoint", hf_checkpoint, "DIR", "checkpoint: config, tokenizer, weights"),
        S("prompt-data", prompt_data, "FILE", "prompts, .jsonl, optionally @[a:b]"),
        S("input-key", input_key, "KEY", "column of the prompt (input)"),
        S("label-key", label_key, "KEY", "column of the label"),
        S("metadata-key", metadata_key, "KEY", "column of the metadata (metadata)"),
        I("rollout-batch-size", rollout_batch_size, 1, 1e6, "prompts per step"),
        I("n-samples-per-prompt", n_samples_per_prompt, 1, 4096, "samples per prompt (1)"),
        D("rollout-temperature", temperature, 0, 0, "sampling temperature (1.0)"),
        D("rollout-top-p", top_p, 0, 1, "nucleus (1.0)"),
        I("rollout-top-k", rollout_top_k, -1, 1e9, "most likely tokens kept; -1: all (-1)"),
        I("rollout-max-response-len", max_response_len, 1, 1e7, "tokens of a response"),
        I("rollout-max-prompt-len", max_prompt_len, 1, 1e7, "longer prompts are dropped"),
        I("rollout-max-context-len", max_context_len, 2, 1e7, "prompt and response together"),
        L("rollout-stop", stop, "TEXT", "stop strings"),
        L("rollout-stop-token-ids", stop_token_ids, "ID", "stop tokens"),
        B("rollout-skip-special-tokens", skip_special_tokens, "leave them out of the text"),
        B("rollout-shuffle", shuffle, "shuffle prompts each epoch"),
        I("rollout-seed", rollout_seed, -BIG, BIG, "of order and sampling (42)"),
        S("update-inflight", update_inflight, "MODE", "samples under way at an update: abort, "
          "resume from their tokens, in-place (abort)"),
        B("partial-rollout", partial_rollout, "slime's word for --update-inflight resume"),
        B("mask-offpolicy-in-partial-rollout", mask_offpolicy, "older policies' tokens: no loss"),
        {"max-staleness", FLAG_INT, &f->max_staleness, 0, 1000, "N",
         "updates that a token may be behind (0; 1 where tokens outlive an update)",
         &f->max_staleness_given},
        S("generate-unary", generate_unary, "WHEN", "whole replies in place of streams: auto (from "
          "engines, without a frontend), on, off"),
        {"num-rollout", FLAG_INT, &f->num_rollout, 0, BIG, "N", "steps, absolute end",
         &f->num_rollout_given},
        I("num-epoch", num_epoch, 1, 1e9, "passes over the prompts, without --num-rollout"),
        {"start-rollout-id", FLAG_INT, &f->start_rollout_id, 0, BIG, "N", "first step",
         &f->start_given},
        I("sglang-server-concurrency", concurrency, 1, 65536, "requests per engine (512)"),
        S("sglang-router-ip", router_ip, "HOST", "a router of others takes the generation"),
        I("sglang-router-port", router_port, 1, 65535, "port of that router"),
        L("rollout-external-engine-addrs", engine_addrs, "HOST:PORT",
          "engines of others (DYNAMO_ENGINE_ADDRS)"),
        I("eval-interval", eval_interval, 1, 1e9, "steps between evaluations"),
        L("eval-prompt-data", eval_prompt_data, "NAME FILE", "held-out prompts"),
        I("n-samples-per-eval-prompt", n_samples_per_eval_prompt, 1, 4096, "samples (1)"),
        {"eval-temperature", FLAG_DOUBLE, &f->eval_temperature, 0, 100, "X", "0: greedy",
         &f->eval_temperature_given},
        {"eval-top-p", FLAG_DOUBLE, &f->eval_top_p, 0, 1, "X", "nucleus", &f->eval_top_p_given},
        {"eval-top-k", FLAG_INT, &f->eval_top_k, -1, 1e9, "N", "tokens kept; -1: all",
         &f->eval_top_k_given},
        I("eval-max-response-len", eval_max_response_len, 1, 1e7, "tokens of a response"),
        S("eval-input-key", eval_input_key, "KEY", "column of the prompt (default: --input-key)"),
        S("eval-label-key", eval_label_key, "KEY", "column of the label (default: --label-key)"),
        B("skip-eval-before-train", skip_eval_before_train, "no evaluation at step 0"),
    };
    memcpy(out, specs, sizeof specs);
    return COUNT(specs);
}

static size_t specs_train(RunFlags *f, FlagSpec *out)
{
    const FlagSpec specs[] = {
        S("rm-type", rm_type, "TYPE", "digits, exact, f1, math, random; metadata.rm_type wins"),
        S("advantage-estimator", estimator, "NAME", "grpo, gspo, cispo, reinforce_plus_plus[…]"),
        S("loss-type", loss_type, "NAME", "policy_loss or sft_loss"),
        D("eps-clip", eps_clip, 0, 0, "clip of the policy ratio (0.2)"),
        D("eps-clip-high", eps_clip_high, 0, 0, "default: --eps-clip"),
        D("eps-clip-c", eps_clip_c, 0, 0, "dual clip, > 1"),
        D("kl-coef", kl_coef, 0, 0, "KL in the reward (0)"),
        B("use-kl-loss", use_kl_loss, "KL in the loss"),
        D("kl-loss-coef", kl_loss_coef, 0, 0, "weight of KL in the loss (0)"),
        S("kl-loss-type", kl_loss_type, "NAME", "k1, k2, k3, low_var_kl"),
        B("use-unbiased-kl", use_unbiased_kl, "weight KL by the ratio"),
        S("ref-load", ref_load, "DIR", "reference policy"),
        D("entropy-coef", entropy_coef, 0, 0, "weight of the entropy bonus (0)"),
        D("gamma", gamma, 0, 0, "discount (1)"),
        B("normalize-advantages", normalize_advantages, "whiten advantages"),
        B("disable-rewards-normalization", no_reward_norm, "raw rewards"),
        B("disable-grpo-std-normalization", no_std_norm, "centre only"),
        B("calculate-per-token-loss", per_token_loss, "mean over tokens"),
        B("use-rollout-logprobs", use_rollout_logprobs, "engine's log-probs as old policy"),
        B("use-tis", use_tis, "truncated importance sampling"),
        D("tis-clip", tis_clip, 0, 0, "largest importance weight (2)"),
        D("tis-clip-low", tis_clip_low, 0, 0, "smallest importance weight (0)"),
        S("custom-tis-function-path", custom_tis, "NAME",
          "with --use-tis: …icepop_function, no other"),
        B("use-opd", use_opd, "on-policy distillation from a teacher"),
        S("opd-type", opd_type, "NAME", "megatron: a checkpoint, scored by the trainer"),
        S("opd-teacher-load", opd_teacher_load, "DIR", "the teacher, of the shape that is trained"),
        D("opd-kl-coef", opd_kl_coef, 0, 0, "weight of the distance to the teacher (1)"),
        B("use-opsm", use_opsm, "off-policy sequence mask"),
        D("opsm-delta", opsm_delta, 0, 0, "divergence that masks a sequence (1e-4)"),
        I("seed", seed, -BIG, BIG, "of training (1234)"),
        D("lr", lr, 0, 0, "learning rate (1e-6)"),
        D("clip-grad", clip_grad, 0, 0, "global norm, 0: none (1.0)"),
        D("weight-decay", weight_decay, 0, 0, "decoupled, of AdamW (0.01)"),
        D("adam-beta1", adam_beta1, 0, 0, "decay of the first moment (0.9)"),
        D("adam-beta2", adam_beta2, 0, 0, "decay of the second moment (0.999)"),
        D("adam-eps", adam_eps, 0, 0, "added to the denominator (1e-8)"),
        I("global-batch-size", global_batch_size, 1, 1e9, "samples per optimizer step"),
        I("num-steps-per-rollout", num_steps_per_rollout, 1, 1e6, "sets the batch size"),
        I("max-tokens-per-gpu", max_tokens_per_gpu, 1, 1e9, "tokens of one pass (8192)"),
        I("save-interval", save_interval, 1, 1e9, "steps between checkpoints"),
        S("save", save, "DIR", "for checkpoints"),
        S("load", load, "DIR", "checkpoint to train from (default: --hf-checkpoint)"),
        S("update-weight-mode", update_weight_mode, "MODE", "full, or delta: what changed (full)"),
        S("update-weight-delta-encoding", delta_encoding, "NAME", "xor or overwrite (xor)"),
        S("update-weight-delta-checksum", delta_sum, "NAME", "xxh3-128 or adler32 (xxh3-128)"),
        {"update-weight-delta-full-every", FLAG_INT, &f->full_every, 1, 1e6, "N",
         "at least one complete version in N (10)", &f->full_every_given},
        S("update-weight-local-checkpoint-dir", local_checkpoint_dir, "DIR",
          "on the hosts of engines of others: where they keep their copy"),
        L("update-budget", update_budget, "PHASE=S",
          "seconds that phases of an update may take, and that doubt lasts (apply=300 …)"),
        S("update-weight-transport", update_weight_transport, "NAME", "disk, the only way (disk)"),
        B("help", help, "this list"),
    };
    memcpy(out, specs, sizeof specs);
    return COUNT(specs);
}

typedef union Ignored {
    const char *text;
    bool on;
    FlagList list;
} Ignored;

static void add_ignored(RunFlags *f, size_t *at, const char *const *names, size_t count,
                        FlagType type)
{
    for (size_t i = 0; i < count; i++, (*at)++) {
        Ignored *target = (Ignored *)f->ignored + *at;
        f->specs[f->used_count + *at] =
            (FlagSpec){.name = names[i], .type = type, .target = target, .value_name = "VALUE",
                       .given = &f->ignored_given[*at]};
    }
}

static void build_specs(RunFlags *f)
{
    enum { USED_MAX = 160 };
    size_t ignored = COUNT(ignored_switches) + COUNT(ignored_values) + COUNT(ignored_lists);
    f->specs = xcalloc(USED_MAX + ignored, sizeof *f->specs);
    f->ignored = xcalloc(ignored, sizeof(Ignored));
    f->ignored_given = xcalloc(ignored, sizeof *f->ignored_given);
    size_t n = specs_ours(f, f->specs);
    n += fleet_flags_specs(&f->fleet, f->specs + n);
    n += specs_rollout(f, f->specs + n);
    n += specs_train(f, f->specs + n);
    f->used_count = n;
    size_t at = 0;
    add_ignored(f, &at, ignored_switches, COUNT(ignored_switches), FLAG_SWITCH);
    add_ignored(f, &at, ignored_values, COUNT(ignored_values), FLAG_STRING);
    add_ignored(f, &at, ignored_lists, COUNT(ignored_lists), FLAG_LIST);
    f->spec_count = n + at;
}

void run_flags_init(RunFlags *flags)
{
    defaults(flags);
    build_specs(flags);
}

static void note_ignored(RunFlags *f, Str name)
{
    text_addf(&f->ignored_names, "%s--%.*s", f->ignored_names.n ? ", " : "", (int)name.n, name.p);
}

static bool known(const RunFlags *f, Str name)
{
    for (size_t i = 0; i < f->spec_count; i++) {
        if (str_equal(str_from(f->specs[i].name), name)) {
            return true;
        }
    }
    return false;
}

/* A flag of a family that belongs to another program, e.g. --sglang-mem-fraction-static. */
static bool is_foreign(const RunFlags *f, const char *word, Str *name)
{
    if (strncmp(word, "--", 2) != 0) {
        return false;
    }
    const char *equals = strchr(word, '=');
    *name = (Str){word + 2, equals ? (size_t)(equals - word - 2) : strlen(word + 2)};
    for (size_t i = 0; i < COUNT(foreign) && !known(f, *name); i++) {
        if (str_starts(*name, str_from(foreign[i]))) {
            return true;
        }
    }
    return false;
}

/* A setting of the engines; those of slime's router are for nobody here. */
static bool is_engine_setting(Str name)
{
    return str_starts(name, STR("sglang-")) && !str_starts(name, STR("sglang-router-"));
}

static Err drop_foreign(RunFlags *f, int argc, char **argv, Fault *fault)
{
    Err err = ERR_OK;
    f->passed = xcalloc((size_t)argc + 1, sizeof *f->passed);
    for (int i = 0; i < argc; i++) {
        Str name;
        if (i > 0 && is_foreign(f, argv[i], &name)) {
            const char *equals = strchr(argv[i], '=');
            int from = i + 1;
            while (i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0) {
                i++; /* its values */
            }
            if (!is_engine_setting(name)) {
                note_ignored(f, name);
            } else if (err == ERR_OK) {
                err = engine_flags_take(&f->sglang, name, equals ? equals + 1 : NULL, argv + from,
                                        i + 1 - from, fault);
            }
        } else {
            f->passed[f->passed_count++] = argv[i];
        }
    }
    return err;
}

Err run_flags_parse(RunFlags *flags, int argc, char **argv, Fault *fault)
{
    run_flags_init(flags);
    Err err = drop_foreign(flags, argc, argv, fault);
    err = err ? err
              : flags_parse(flags->specs, flags->spec_count, flags->passed_count, flags->passed,
                          &flags->rest, fault);
    if (err == ERR_OK && flags->rest.count > 0) {
        err = fault_set(fault, ERR_ARG, "run takes flags only", "unexpected word %s",
                        flags->rest.items[0]);
    }
    if (flags->custom_tis && !run_flags_icepop(flags)) {
        note_ignored(flags, STR("custom-tis-function-path")); /* a function of somebody's own */
    }
    for (size_t i = flags->used_count; i < flags->spec_count; i++) {
        if (*flags->specs[i].given) {
            note_ignored(flags, str_from(flags->specs[i].name));
        }
    }
    return err;
}

bool run_flags_icepop(const RunFlags *flags)
{
    const char *dot = flags->custom_tis ? strrchr(flags->custom_tis, '.') : NULL;
    return dot && strcmp(dot, ".icepop_function") == 0;
}

void run_flags_free(RunFlags *flags)
{
    if (flags->specs) {
        flags_free(flags->specs, flags->spec_count, &flags->rest);
    }
    free(flags->specs);
    free(flags->ignored);
    free(flags->ignored_given);
    free(flags->passed);
    text_free(&flags->ignored_names);
    engine_flags_free(&flags->sglang);
    *flags = (RunFlags){0};
}

void cmd_run_flags(FlagVisit *visit, void *to)
{
    RunFlags flags;
    run_flags_init(&flags);
    visit(flags.specs, flags.used_count, to);
    run_flags_free(&flags);
}

void run_flags_help(FILE *out)
{
    RunFlags flags;
    run_flags_init(&flags);
    fputs("usage: rolltop run --hf-checkpoint DIR --prompt-data FILE --rm-type TYPE\n"
          "           --rollout-batch-size N --num-rollout N --rollout-max-response-len N\n"
          "           (--local-engines N | --rollout-external-engine-addrs A… --rollout-url URL)\n"
          "       rolltop run --resume --log FILE\n\n",
          out);
    flags_help(flags.specs, flags.used_count, out);
    fputs("\nAccepted, stored and not used (slime's and Megatron's):\n ", out);
    int column = 1;
    for (size_t i = flags.used_count; i < flags.spec_count; i++) {
        int width = (int)strlen(flags.specs[i].name) + 3;
        if (column + width > 96) {
            fputs("\n ", out);
            column = 1;
        }
        fprintf(out, " --%s", flags.specs[i].name);
        column += width;
    }
    fputs("\nand all of --router-*, --wandb-*, --tb-*, --ci-*, --moe-*, --fp8-*.\n"
          "Those of --sglang-* go on to engines of --engine-cmd, and are compared with what engines"
          " of\nothers say (docs/compatibility.md).\n",
          out);
    run_flags_free(&flags);
}

/* ---- for the log -------------------------------------------------------------------------- */

static bool is_secret(Str name)
{
    static const char *const words[] = {"api-key", "token-file", "secret", "password", "wandb-key",
                                        "auth", "bearer", "credential"};
    for (size_t i = 0; i < COUNT(words); i++) {
        size_t at = 0;
        if (str_find(name, str_from(words[i]), &at)) {
            return true;
        }
    }
    return false;
}

void run_flags_argv_json(int argc, char **argv, Text *out)
{
    JsonOut json;
    json_begin(&json, out);
    json_array_begin(&json);
    bool hide = false;
    for (int i = 0; i < argc; i++) {
        Str word = str_from(argv[i]);
        size_t equals = 0;
        bool flag = str_starts(word, STR("--"));
        bool joined = flag && str_find(word, STR("="), &equals);
        Str name = joined ? str_slice(word, 0, equals) : word;
        if (hide && !flag) {
            json_put_string(&json, "***");
        } else if (joined && is_secret(name)) {
            char shown[160];
            (void)str_format(shown, sizeof shown, "%.*s=***", (int)name.n, name.p);
            json_put_string(&json, shown);
        } else {
            json_put_str(&json, word);
        }
        hide = (flag && !joined && is_secret(name)) || (hide && !flag);
    }
    json_array_end(&json);
}

static void put_value(JsonOut *json, const FlagSpec *spec)
{
    switch (spec->type) {
    case FLAG_SWITCH: json_put_bool(json, *(bool *)spec->target); break;
    case FLAG_INT: json_put_i64(json, *(int64_t *)spec->target); break;
    case FLAG_DOUBLE: json_put_double(json, *(double *)spec->target); break;
    case FLAG_STRING: json_put_string(json, *(const char **)spec->target); break;
    case FLAG_LIST: {
        const FlagList *list = spec->target;
        json_array_begin(json);
        for (size_t i = 0; i < list->count; i++) {
            json_put_string(json, list->items[i]);
        }
        json_array_end(json);
        break;
    }
    }
}

void run_flags_config_json(const RunFlags *flags, Text *out)
{
    JsonOut json;
    json_begin(&json, out);
    json_object_begin(&json);
    for (size_t i = 0; i < flags->used_count; i++) {
        const FlagSpec *spec = &flags->specs[i];
        if (strcmp(spec->name, "help") == 0) {
            continue;
        }
        json_key(&json, spec->name);
        if (is_secret(str_from(spec->name))) {
            json_put_string(&json, "***");
        } else {
            put_value(&json, spec);
        }
    }
    json_key(&json, "sglang");
    json_object_begin(&json);
    for (int i = 0; i < flags->sglang.setting_count; i++) {
        json_member_string(&json, flags->sglang.settings[i].name,
                           flags->sglang.settings[i].value);
    }
    json_object_end(&json);
    json_member_string(&json, "accepted-not-used", text_c(&flags->ignored_names));
    json_object_end(&json);
}
