/* `rolltop verify`: flags, two tiny checkpoints for a local fleet, the check, its exit status. */
#include "core/app/app.h"
#include "core/app/engine_flags.h"
#include "core/app/fleet_flags.h"
#include "core/app/run_flags.h"
#include "core/base/clock.h"
#include "core/base/fs.h"
#include "core/base/mem.h"
#include "core/loop/verify.h"
#include "core/model/tokenizer.h"
#include "core/model/weights.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct VerifyFlags {
    const char *log, *url, *kill_cmd, *restore_cmd, *update_dir;
    FlagList addrs;
    int64_t local, samples, tokens, startup_s, recover_s;
    bool json, help;
    FleetFlags fleet;
} VerifyFlags;

typedef struct VerifyPlan {
    VerifyConfig config;
    FleetAddresses addresses;
    char *run_id, *log, *work, *model, *update, *bearer, *admin, *program;
    Text argv;
} VerifyPlan;

enum { OWN_SPECS = 13, SPECS = OWN_SPECS + FLEET_FLAG_SPECS };

static size_t specs_of(VerifyFlags *f, FlagSpec out[SPECS])
{
    *f = (VerifyFlags){.tokens = 32, .startup_s = 60, .recover_s = 120};
    fleet_flags_defaults(&f->fleet);
    const FlagSpec own[OWN_SPECS] = {
        {"local", FLAG_INT, &f->local, 2, 64, "N", "a fleet of its own with N engines", NULL},
        {"rollout-external-engine-addrs", FLAG_LIST, &f->addrs, 0, 0, "HOST:PORT",
         "engines (DYNAMO_ENGINE_ADDRS)", NULL},
        {"rollout-url", FLAG_STRING, &f->url, 0, 0, "URL", "frontend (DYNAMO_ROLLOUT_URL)", NULL},
        {"kill-cmd", FLAG_STRING, &f->kill_cmd, 0, 0, "COMMAND",
         "stops the engine at $ROLLTOP_ENGINE (a shell runs it)", NULL},
        {"restore-cmd", FLAG_STRING, &f->restore_cmd, 0, 0, "COMMAND",
         "starts it again; without it, it is expected to come back", NULL},
        {"update-from", FLAG_STRING, &f->update_dir, 0, 0, "DIR",
         "checkpoint of the update (default: what the engines serve)", NULL},
        {"samples", FLAG_INT, &f->samples, 1, 100000, "N", "of a rollout (4 an engine)", NULL},
        {"tokens", FLAG_INT, &f->tokens, 1, 100000, "N", "of a sample (32)", NULL},
        {"startup-timeout", FLAG_INT, &f->startup_s, 1, 86400, "S", "for engines to answer (60)",
         NULL},
        {"recover-timeout", FLAG_INT, &f->recover_s, 1, 86400, "S",
         "for the lost engine to come back (120)", NULL},
        {"log", FLAG_STRING, &f->log, 0, 0, "FILE", "default: under the state directory", NULL},
        {"json", FLAG_SWITCH, &f->json, 0, 0, NULL, "one JSON object instead of lines", NULL},
        {"help", FLAG_SWITCH, &f->help, 0, 0, NULL, "this list", NULL}};
    memcpy(out, own, sizeof own);
    return OWN_SPECS + fleet_flags_specs(&f->fleet, out + OWN_SPECS);
}

void cmd_verify_flags(FlagVisit *visit, void *to)
{
    VerifyFlags f;
    FlagSpec specs[SPECS];
    visit(specs, specs_of(&f, specs), to);
}

/* A Qwen3 of 0.1M random parameters: small, and real enough to load, check and score. */
static Err make_model(const char *dir, uint64_t seed, Fault *fault)
{
    static const char *const special[] = {"<|end|>", "<|pad|>"};
    Tokenizer *tokenizer = NULL;
    Err err = fs_mkdirs(dir, 0755, fault);
    err = err ? err : tokenizer_write_alphabet(dir, special, 2, STR("0123456789 abcdefgh="), fault);
    err = err ? err : tokenizer_load(dir, &tokenizer, fault);
    if (err != ERR_OK) {
        return err;
    }
    ModelConfig config = {.arch = MODEL_QWEN3, .layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2,
                          .head_dim = 16, .ffn = 128, .vocab = tokenizer_vocab(tokenizer),
                          .max_positions = 4096, .rms_eps = 1e-6f, .rope_theta = 10000.0,
                          .tied = true, .dtype = MODEL_F32, .bos = -1,
                          .eos = {tokenizer_id_of(tokenizer, special[0])}, .eos_count = 1};
    tokenizer_free(tokenizer);
    return weights_init_random(&config, seed, dir, fault);
}

static Err name_log(const VerifyFlags *f, VerifyPlan *plan, Fault *fault)
{
    char stamp[32];
    time_t now = (time_t)(clock_wall_us() / 1000000);
    struct tm parts;
    char *state = NULL;
    gmtime_r(&now, &parts);
    (void)strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &parts);
    plan->run_id = xasprintf("verify-%s", stamp);
    Err err = f->log ? ERR_OK : fs_state_dir(&state, fault);
    plan->log = err ? NULL : f->log ? xstrdup(f->log) : xasprintf("%s/%s.db", state, plan->run_id);
    free(state);
    if (err == ERR_OK && fs_exists(plan->log)) {
        err = fault_set(fault, ERR_EXISTS, "name another file", "--log %s is there already",
                        plan->log);
    }
    return err;
}

static Err check_fleet(const VerifyFlags *f, const VerifyPlan *plan, Fault *fault)
{
    if (f->local > 0 && f->addrs.count > 0) {
        return fault_set(fault, ERR_ARG, "give one of them",
                         "--local and --rollout-external-engine-addrs are two fleets");
    }
    if (f->local == 0 && plan->addresses.count == 0) {
        return fault_set(fault, ERR_ARG, "give --local N, --rollout-external-engine-addrs "
                         "HOST:PORT …, or DYNAMO_ENGINE_ADDRS", "no fleet to verify");
    }
    if (f->local == 0 && plan->addresses.count > VERIFY_ENGINES_MAX) {
        return fault_set(fault, ERR_LIMIT, "name some of them", "verify takes at most %d engines",
                         VERIFY_ENGINES_MAX);
    }
    if (fleet_flags_any_source(&f->fleet)) {
        return fault_set(fault, ERR_ARG, "name the engines",
                         "verify checks a fixed set of engines, without discovery");
    }
    if (f->local > 0 && (f->kill_cmd || f->restore_cmd)) {
        return fault_set(fault, ERR_ARG, "leave it out",
                         "--kill-cmd is for fleets of others; --local stops its own");
    }
    if (f->local > 0 && (f->update_dir || f->url)) {
        return fault_set(fault, ERR_ARG, "leave it out",
                         "--%s is for fleets of others; --local has %s of its own",
                         f->update_dir ? "update-from" : "rollout-url",
                         f->update_dir ? "checkpoints" : "a frontend");
    }
    if (f->restore_cmd && !f->kill_cmd) {
        return fault_set(fault, ERR_ARG, "give --kill-cmd too",
                         "--restore-cmd is of no use without --kill-cmd");
    }
    return ERR_OK;
}

static Err make_local(VerifyPlan *plan, Fault *fault)
{
    plan->work = xasprintf("%s.d", plan->log);
    plan->model = fs_join(plan->work, "model-a");
    plan->update = fs_join(plan->work, "model-b");
    Err err = make_model(plan->model, 1, fault);
    return err ? err : make_model(plan->update, 2, fault);
}

static Err make_plan(const VerifyFlags *f, int argc, char **argv, VerifyPlan *plan, Fault *fault)
{
    *plan = (VerifyPlan){.run_id = NULL};
    text_init(&plan->argv, 1 << 20);
    run_flags_argv_json(argc, argv, &plan->argv);
    plan->program = app_program();
    Err err = f->local > 0 ? ERR_OK
                           : fleet_addresses_read(&f->addrs, f->url, &plan->addresses, fault);
    err = err ? err : fleet_flags_check(&f->fleet, plan->addresses.frontend != NULL, fault);
    err = err ? err : check_fleet(f, plan, fault);
    err = err ? err : name_log(f, plan, fault);
    if (f->local == 0) {
        err = err ? err : engine_key_read("SGLANG_API_KEY", &plan->bearer, fault);
        err = err ? err : engine_key_read("SGLANG_ADMIN_API_KEY", &plan->admin, fault);
    } else {
        err = err ? err : make_local(plan, fault);
    }
    plan->config = (VerifyConfig){
        .run_id = plan->run_id, .log_path = plan->log, .argv_json = text_c(&plan->argv),
        .program = plan->program, .engine_addrs = plan->addresses.list,
        .engine_addr_count = plan->addresses.count, .frontend_url = plan->addresses.frontend,
        .engine_bearer = plan->bearer, .engine_admin = plan->admin, .update_dir = f->update_dir,
        .kill_cmd = f->kill_cmd, .restore_cmd = f->restore_cmd, .local_engines = f->local,
        .local_model = plan->model, .local_update = plan->update, .samples = f->samples,
        .tokens = f->tokens, .startup_s = f->startup_s, .recover_s = f->recover_s,
        .probe = fleet_flags_probe(&f->fleet), .lines = f->json ? NULL : stdout};
    return err;
}

static void free_plan(VerifyPlan *plan)
{
    if (plan->work) {
        (void)fs_remove_tree(plan->work, NULL);
    }
    fleet_addresses_free(&plan->addresses);
    char *const owned[] = {plan->run_id, plan->log, plan->work, plan->model, plan->update,
                           plan->bearer, plan->admin, plan->program};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
        free(owned[i]);
    }
    text_free(&plan->argv);
}

static int verify(const VerifyFlags *f, VerifyPlan *plan)
{
    Fault fault = {0};
    VerifyReport report;
    if (verify_run(&plan->config, &report, &fault) != ERR_OK) {
        return app_fail(&fault, APP_USAGE);
    }
    if (f->json) {
        Text text;
        JsonOut out;
        text_init(&text, 1 << 20);
        json_begin(&out, &text);
        verify_report_json(&report, &out);
        printf("%s\n", text_c(&text));
        text_free(&text);
    }
    return report.failed == 0 ? APP_OK : APP_NOT_REACHED;
}

int cmd_verify(int argc, char **argv)
{
    static const FlagCommand command = {
        "usage: rolltop verify (--local N | --rollout-external-engine-addrs HOST:PORT … "
        "[--rollout-url URL])\n                      [--kill-cmd COMMAND] [FLAGS]\n",
        0, 0, NULL, "verify takes flags only"};
    VerifyFlags f;
    FlagSpec specs[SPECS];
    size_t count = specs_of(&f, specs);
    FlagRest rest;
    int status;
    if (!app_parse(&command, specs, count, argc, argv, &rest, &status)) {
        return status;
    }
    Fault fault = {0};
    VerifyPlan plan = {.run_id = NULL};
    Err err = make_plan(&f, argc, argv, &plan, &fault);
    status = err ? app_fail(&fault, APP_USAGE) : verify(&f, &plan);
    free_plan(&plan);
    flags_free(specs, count, &rest);
    return status;
}
