/* The fleet of a run: addresses, frontend, keys, what local engines are started with. */
#include "core/app/run_plan_private.h"

#include "core/base/fs.h"
#include "core/base/mem.h"

#include <stdlib.h>
#include <string.h>

static Err check_address(const char *address, Fault *fault)
{
    Str s = str_from(address);
    size_t colon = 0;
    int64_t port = 0;
    bool good = str_rfind(s, STR(":"), &colon) && colon > 0 &&
                str_to_i64(str_slice(s, colon + 1, s.n), &port) && port > 0 && port < 65536;
    return good ? ERR_OK
                : fault_set(fault, ERR_ARG, "write HOST:PORT", "engine address \"%s\" is not one",
                            address);
}

static Err fill_addresses(RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    const char *env = getenv("DYNAMO_ENGINE_ADDRS");
    size_t count = f->engine_addrs.count;
    plan->addrs = xcalloc(FLAG_LIST_MAX + 1, sizeof *plan->addrs);
    for (size_t i = 0; i < count; i++) {
        plan->addrs[i] = f->engine_addrs.items[i];
    }
    if (count == 0 && f->local_engines == 0 && env && env[0]) {
        plan->addrs_text = xstrdup(env);
        char *rest = NULL;
        for (char *word = strtok_r(plan->addrs_text, " ,\t\n", &rest);
             word && count < FLAG_LIST_MAX; word = strtok_r(NULL, " ,\t\n", &rest)) {
            plan->addrs[count++] = word;
        }
    }
    for (size_t i = 0; i < count; i++) {
        if (strncmp(plan->addrs[i], "http://", 7) == 0) {
            plan->addrs[i] += 7;
        }
        Err err = check_address(plan->addrs[i], fault);
        if (err != ERR_OK) {
            return err;
        }
    }
    plan->config.engine_addrs = plan->addrs;
    plan->config.engine_addr_count = count;
    return ERR_OK;
}

/* --rollout-url, else DYNAMO_ROLLOUT_URL, else the router of --sglang-router-ip: slime's adapter
 * for Dynamo replaces that router too. Local engines have a frontend of their own. */
static Err fill_rollout_url(RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    const char *url = f->rollout_url;
    char router[300];
    if ((f->router_ip != NULL) != (f->router_port > 0)) {
        return fault_set(fault, ERR_ARG, "give both",
                         "--sglang-router-ip and --sglang-router-port belong together");
    }
    if (!url && f->local_engines == 0) {
        url = getenv("DYNAMO_ROLLOUT_URL");
    }
    if (!(url && url[0]) && f->router_ip) {
        const char *form = strchr(f->router_ip, ':') ? "http://[%s]:%lld" : "http://%s:%lld";
        int n = snprintf(router, sizeof router, form, f->router_ip, (long long)f->router_port);
        if (n < 0 || (size_t)n >= sizeof router) {
            return fault_set(fault, ERR_ARG, NULL, "--sglang-router-ip is too long");
        }
        url = router;
    }
    if (url && url[0]) {
        if (strchr(url, '@')) { /* it would be kept in the log, and is not repeated here */
            return fault_set(fault, ERR_ARG, "write http://HOST:PORT, keys come from environment "
                             "variables", "the frontend's URL has a user or password in it");
        }
        if (strncmp(url, "http://", 7) != 0 || strpbrk(url + 7, "/?#")) {
            return fault_set(fault, ERR_ARG, "write http://HOST:PORT",
                             "the frontend's URL \"%s\" is not one", url);
        }
        plan->rollout_url = xstrdup(url);
        plan->config.rollout_url = plan->rollout_url;
        plan->config.router = url == router;
    }
    return ERR_OK;
}

/* Children find the keys in their environment, under the same names. */
static Err fill_keys(RunPlan *plan, Fault *fault)
{
    Err err = engine_key_read("SGLANG_API_KEY", &plan->bearer, fault);
    err = err ? err : engine_key_read("SGLANG_ADMIN_API_KEY", &plan->admin, fault);
    if ((plan->bearer && setenv("SGLANG_API_KEY", plan->bearer, 1) != 0) ||
        (plan->admin && setenv("SGLANG_ADMIN_API_KEY", plan->admin, 1) != 0)) {
        return fault_set(fault, ERR_MEMORY, NULL, "no room for the engines' keys");
    }
    plan->config.engine_bearer = plan->bearer;
    plan->config.engine_admin = plan->admin;
    return err;
}

static Err check_program(const char *flag, const char *program, Fault *fault)
{
    return fs_is_program(program)
               ? ERR_OK
               : fault_set(fault, ERR_NOT_FOUND, "check the path and its permissions, or PATH",
                           "--%s: there is no program %s", flag, program);
}

static Err fill_engines(RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    RunConfig *c = &plan->config;
    c->local_engines = f->local_engines;
    c->engine_threads = f->engine_threads;
    c->engine_settings = f->sglang.settings;
    c->engine_setting_count = (size_t)f->sglang.setting_count;
    if (f->engine_cmd && f->local_engines == 0) {
        return fault_set(fault, ERR_ARG, "say how many with --local-engines N",
                         "--engine-cmd starts engines on this machine, and none are asked for");
    }
    if (f->engine_cmd) {
        Err err = engine_command_make(f->engine_cmd, f->hf_checkpoint, &f->sglang,
                                      &plan->engine_command, fault);
        err = err ? err : check_program("engine-cmd", plan->engine_command[0], fault);
        if (err != ERR_OK) {
            return err;
        }
        c->engine_command = (const char *const *)plan->engine_command;
    }
    return fill_keys(plan, fault);
}

Err plan_fleet(RunPlan *plan, Fault *fault)
{
    const RunFlags *f = plan->flags;
    RunConfig *c = &plan->config;
    Err err = fill_addresses(plan, fault);
    if (err != ERR_OK) {
        return err;
    }
    bool others = c->engine_addr_count > 0 || fleet_flags_any_source(&f->fleet);
    if (others == (f->local_engines > 0)) {
        return fault_set(fault, ERR_ARG,
                         "give --local-engines N, or --rollout-external-engine-addrs",
                         others ? "engines are given both as local ones and by "
                                                    "address"
                                                  : "no engines are given");
    }
    err = fill_rollout_url(plan, fault);
    err = err ? err : fill_engines(plan, fault);
    err = err ? err : fleet_flags_check(&f->fleet, c->rollout_url != NULL, fault);
    c->sources = fleet_flags_sources(&f->fleet);
    c->probe = fleet_flags_probe(&f->fleet);
    c->gone_looks = f->fleet.gone_looks;
    if (err != ERR_OK) {
        return err;
    }
    if (f->engine_faults) {
        plan->engine_extra[0] = "--faults";
    }
    c->engine_extra = plan->engine_extra;
    if (f->trainer) {
        plan->trainer_argv[0] = f->trainer;
        c->trainer_command = plan->trainer_argv;
        err = check_program("trainer", f->trainer, fault);
    }
    return err;
}
