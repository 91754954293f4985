#include "core/app/cmd_policy_verify.h"

#include "core/app/engine_flags.h"
#include "core/app/fleet_flags.h"
#include "core/app/runs.h"
#include "core/base/fs.h"
#include "core/loop/holds_fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALL_MS = 60000 }; /* the core asks again while policies change, for 25 s at most */

/* Digests that begin alike differ soon. */
static void print_row(const cJSON *row)
{
    const char *why = json_string(row, "why", "");
    char version[24] = "-";
    char canary[32] = "-";
    if (!json_bool(row, "serves", false)) {
        printf("%-10s %-22s %-9s %s\n", json_string(row, "engine", "?"),
               json_string(row, "address", "?"), "-", json_string(row, "state", "?"));
        return;
    }
    if (json_i64(row, "version", -1) >= 0) {
        (void)snprintf(version, sizeof version, "v%lld", (long long)json_i64(row, "version", -1));
    }
    if (json_get(row, "canary_off")) {
        (void)snprintf(canary, sizeof canary, "%.3g", json_double(row, "canary_off", 0.0));
    } else if (json_i64(row, "canary", 0) > 0) {
        (void)snprintf(canary, sizeof canary, "scored");
    }
    const char *sum = json_string(row, "checksum", "");
    printf("%-10s %-22s %-9s %-8s %-34.32s %-9s%s%s\n", json_string(row, "engine", "?"),
           json_string(row, "address", "?"), json_bool(row, "holds", false) ? "holds" : "NO",
           version, sum[0] ? sum : "not offered", canary, why[0] ? " " : "", why);
}

static void print_table(const cJSON *report)
{
    const cJSON *row = NULL;
    printf("%-10s %-22s %-9s %-8s %-34s %-9s %s\n", "ENGINE", "ADDRESS", "VERDICT", "VERSION",
           "CHECKSUM", "CANARY", "WHY NOT");
    cJSON_ArrayForEach(row, json_get(report, "engines")) {
        print_row(row);
    }
    const char *digest = json_string(report, "digest", "");
    printf("%s%s%s; canaries against %s, tolerance %g\n", json_string(report, "message", "?"),
           digest[0] ? ", digest " : "", digest,
           json_bool(report, "own_forward_pass", false) ? "the policy's own forward pass"
                                                        : "each other",
           json_double(report, "tolerance", 0.0));
}

static Err print(const cJSON *report, bool json, bool *holds, Fault *fault)
{
    *holds = json_bool(report, "ok", false);
    if (!json_get(report, "engines")) {
        return fault_set(fault, ERR_STATE, NULL, "%s", json_string(report, "message", "no words"));
    }
    if (json) {
        char *text = cJSON_PrintUnformatted(report);
        printf("%s\n", text ? text : "{}");
        cJSON_free(text);
    } else {
        print_table(report);
    }
    return ERR_OK;
}

static Err ask_run(const PolicyVerify *v, cJSON **report, Fault *fault)
{
    RunList runs = {.count = 0};
    const RunEntry *run = NULL;
    CtlClient *client = NULL;
    Err err = runs_list(&runs, fault);
    err = err ? err : runs_pick(&runs, v->run, &run, fault);
    err = err ? err : ctl_connect(run->socket, CALL_MS, &client, fault);
    err = err ? err : ctl_call(client, STR("{\"cmd\":\"policy-verify\"}"), CALL_MS, report, fault);
    ctl_client_free(client);
    runs_free(&runs);
    return err;
}

static Err ask_fleet(const PolicyVerify *v, cJSON **report, Fault *fault)
{
    FleetAddresses addresses = {0};
    char *bearer = NULL;
    char *admin = NULL;
    Text text;
    text_init(&text, 16 << 20);
    Err err = fleet_addresses_read(&v->addrs, NULL, &addresses, fault);
    err = err ? err : engine_key_read("SGLANG_API_KEY", &bearer, fault);
    err = err ? err : engine_key_read("SGLANG_ADMIN_API_KEY", &admin, fault);
    if (err == ERR_OK && v->artifact && !fs_is_dir(v->artifact)) {
        err = fault_set(fault, ERR_NOT_FOUND, "name the checkpoint that the engines should hold",
                        "%s is not a directory", v->artifact);
    }
    HoldsFleet fleet = {.addrs = addresses.list, .addr_count = addresses.count, .bearer = bearer,
                        .admin = admin, .artifact = v->artifact,
                        .version = v->version > 0 ? v->version : -1};
    err = err ? err : holds_fleet_run(&fleet, &text, fault);
    err = err ? err : json_parse(text_str(&text), 16 << 20, "the report", report, fault);
    text_free(&text);
    free(bearer);
    free(admin);
    fleet_addresses_free(&addresses);
    return err;
}

Err policy_verify(const PolicyVerify *v, bool *holds, Fault *fault)
{
    cJSON *report = NULL;
    *holds = false;
    if (v->addrs.count == 0 && (v->artifact || v->version > 0)) {
        return fault_set(fault, ERR_ARG, "give --rollout-external-engine-addrs HOST:PORT …",
                         "a directory and --version are for engines by their addresses; a run is "
                         "asked about its committed policy");
    }
    Err err = v->addrs.count > 0 ? ask_fleet(v, &report, fault) : ask_run(v, &report, fault);
    err = err ? err : print(report, v->json, holds, fault);
    cJSON_Delete(report);
    return err;
}
