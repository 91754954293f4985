/* `rolltop policies FILE` and `rolltop policy show|diff`: the ledger of policies and their
 * transactions, and what changed between two of them. */
#include "core/app/app.h"
#include "core/app/cmd_policy_verify.h"
#include "core/base/flags.h"
#include "core/base/fs.h"
#include "core/base/json.h"
#include "core/base/mem.h"
#include "core/policy/delta.h"
#include "core/policy/policy_diff.h"
#include "store/query.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct PolicyFlags {
    const char *log, *run;
    FlagList addrs;
    const char *version;
    bool json, help;
} PolicyFlags;

enum { POLICY_SPECS = 6 };

static void policy_specs(PolicyFlags *f, FlagSpec specs[POLICY_SPECS])
{
    const FlagSpec table[POLICY_SPECS] = {
        {"log", FLAG_STRING, &f->log, 0, 0, "FILE", "the log, for show and diff", NULL},
        {"run", FLAG_STRING, &f->run, 0, 0, "ID", "verify: which run, when several are alive",
         NULL},
        {"rollout-external-engine-addrs", FLAG_LIST, &f->addrs, 0, 0, "HOST:PORT",
         "verify: engines without a run", NULL},
        {"version", FLAG_STRING, &f->version, 0, 0, "N", "verify: that these should report", NULL},
        {"json", FLAG_SWITCH, &f->json, 0, 0, NULL, "one JSON object a line", NULL},
        {"help", FLAG_SWITCH, &f->help, 0, 0, NULL, "this list", NULL}};
    memcpy(specs, table, sizeof table);
}

void cmd_policy_flags(FlagVisit *visit, void *to)
{
    PolicyFlags f = {0};
    FlagSpec specs[POLICY_SPECS];
    policy_specs(&f, specs);
    visit(specs, POLICY_SPECS, to);
}

static const char policy_usage[] =
    "usage: rolltop policies FILE [--json]\n"
    "       rolltop policy show VERSION --log FILE [--json]\n"
    "       rolltop policy diff A B --log FILE | rolltop policy diff DIR DIR\n"
    "       rolltop policy verify [--run ID] [--json]\n"
    "       rolltop policy verify [DIR] --rollout-external-engine-addrs HOST:PORT …\n\n"
    "  policies  every policy, its digest, its state and when it was decided\n"
    "  show      one policy: its states, its transactions, each engine's answers\n"
    "  diff      per tensor: norms, norm of the change, share of changed elements\n"
    "  verify    now, on the engines: reported version, checksum, a scored canary; status 1\n"
    "            when one does not hold what it should. Nothing is changed\n";

/* Where the log says that a version lies; malloc'ed, NULL where it does not say. */
static Err policy_path(const char *log, int64_t version, char **path, Fault *fault)
{
    char sql[128];
    (void)str_format(sql, sizeof sql, "select path from policy where version = %lld "
                     "order by change_id desc limit 1", (long long)version);
    *path = NULL;
    char *text = NULL;
    size_t n = 0;
    FILE *memory = open_memstream(&text, &n);
    Err err = memory ? query_sql(log, sql, true, memory, fault)
                     : fault_set(fault, ERR_MEMORY, NULL, "no memory");
    if (memory) {
        fclose(memory);
    }
    cJSON *row = NULL;
    if (err == ERR_OK && n > 1) {
        err = json_parse((Str){text, n}, 1 << 20, log, &row, fault);
    }
    const char *found = json_string(row, "path", NULL);
    if (err == ERR_OK && !row) {
        err = fault_set(fault, ERR_NOT_FOUND, "rolltop policies FILE lists them",
                        "%s knows no policy %lld", log, (long long)version);
    }
    *path = err == ERR_OK && found ? xstrdup(found) : NULL;
    cJSON_Delete(row);
    free(text);
    return err;
}

/* ---- show --------------------------------------------------------------------------------- */

static const char *const show_parts[][2] = {
    {"policy", "select version, t_us, parent, digest, path, kind, bytes, step from policy "
               "where version = %lld order by change_id"},
    {"states", "select s.t_us, e.word as state, s.txn_id as txn, s.reason from policy_state s "
               "left join enumeration e on e.kind = 'policy_state' and e.code = s.state "
               "where s.version = %lld order by s.change_id"},
    {"transactions", "select txn_id as txn, started_us, from_version, to_version, engines, why, "
                     "case decided when 1 then 'commit' when 0 then 'roll back' end as decided, "
                     "decided_us, decision_reason, outcome, ended_us, pause_us "
                     "from txn where to_version = %lld order by txn_id"},
    {"answers", "select a.txn_id as txn, a.engine, a.incarnation, e.word as phase, "
                "case a.ok when 1 then 'ok' else 'failed' end as answer, a.took_us, a.detail "
                "from txn_answer a join txn t on t.txn_id = a.txn_id "
                "left join enumeration e on e.kind = 'txn_phase' and e.code = a.phase "
                "where t.to_version = %lld order by a.answer_id"}};

static Err show(const PolicyFlags *f, int64_t version, Fault *fault)
{
    char *path = NULL;
    Err err = policy_path(f->log, version, &path, fault); /* an unknown one shows nothing */
    free(path);
    for (size_t i = 0; i < sizeof show_parts / sizeof *show_parts && err == ERR_OK; i++) {
        char sql[640];
        const char *at = strstr(show_parts[i][1], "%lld");
        (void)str_format(sql, sizeof sql, "%.*s%lld%s", (int)(at - show_parts[i][1]),
                         show_parts[i][1], (long long)version, at + 4);
        if (!f->json) {
            printf("%s%s\n", i > 0 ? "\n" : "", show_parts[i][0]);
            fflush(stdout);
        }
        err = query_sql(f->log, sql, f->json, stdout, fault);
    }
    return err;
}

/* ---- diff --------------------------------------------------------------------------------- */

typedef struct DiffTable {
    bool json, began; /* titles come with the first row: none above an error */
} DiffTable;

static void print_row(const PolicyDiff *row, void *user)
{
    DiffTable *table = user;
    double share = row->elements > 0 ? (double)row->changed / (double)row->elements : 0.0;
    if (!table->json) {
        if (!table->began) {
            printf("%-48s %12s %10s %12s %12s %12s\n", "TENSOR", "ELEMENTS", "CHANGED", "NORM A",
                   "NORM B", "NORM CHANGE");
        }
        table->began = true;
        printf("%-48s %12lld %8.4f %% %12.6g %12.6g %12.6g\n", row->name,
               (long long)row->elements, 100.0 * share, row->norm_a, row->norm_b,
               row->norm_change);
        return;
    }
    Text text;
    text_init(&text, 65536);
    JsonOut out;
    json_begin(&out, &text);
    json_object_begin(&out);
    json_member_string(&out, "tensor", row->name);
    json_member_i64(&out, "elements", row->elements);
    json_member_i64(&out, "changed", row->changed);
    json_member_double(&out, "norm_a", row->norm_a);
    json_member_double(&out, "norm_b", row->norm_b);
    json_member_double(&out, "norm_change", row->norm_change);
    json_object_end(&out);
    printf("%s\n", text_c(&text));
    text_free(&text);
}

/* A version that is kept as a delta: built from its chain, beside which the path lies, into a
 * directory of its own that the caller removes. */
static Err build(int64_t version, char **dir, char **built, Fault *fault)
{
    const char *end = strrchr(*dir, '/');
    char *chain = xasprintf("%.*s/chain", end ? (int)(end - *dir) : 1, end ? *dir : ".");
    Err err = ERR_OK;
    if (!fs_is_dir(*dir) && delta_reachable(chain, version)) {
        const char *temp = getenv("TMPDIR");
        *built = xasprintf("%s/rolltop-policy-XXXXXX", temp && temp[0] ? temp : "/tmp");
        if (!mkdtemp(*built)) {
            err = fault_set_sys(fault, ERR_IO, errno, "set TMPDIR", "%s cannot be made", *built);
            free(*built);
            *built = NULL;
        } else {
            free(*dir);
            *dir = fs_join(*built, "policy");
            err = delta_build(chain, version, *dir, fault);
        }
    }
    free(chain);
    return err;
}

/* A version of the log, or a directory. Both malloc'ed; `built` is a directory to remove, or
 * NULL. */
static Err policy_dir(const PolicyFlags *f, const char *word, char **dir, char **built,
                      Fault *fault)
{
    int64_t version = 0;
    *dir = NULL;
    if (!app_version(word, &version)) {
        *dir = xstrdup(word);
        return ERR_OK;
    }
    if (!f->log) {
        return fault_set(fault, ERR_ARG, "add --log FILE",
                         "policy %lld is looked up in a log, and none is named",
                         (long long)version);
    }
    Err err = policy_path(f->log, version, dir, fault);
    if (err == ERR_OK && !*dir) {
        err = fault_set(fault, ERR_NOT_FOUND, "name a directory",
                        "%s does not say where policy %lld lies", f->log, (long long)version);
    }
    err = err ? err : build(version, dir, built, fault);
    if (err == ERR_OK && !fs_is_dir(*dir)) {
        err = fault_set(fault, ERR_NOT_FOUND, "rolltop policies FILE tells which are not retired",
                        "the weights of policy v%lld are no longer at %s", (long long)version,
                        *dir);
    }
    return err;
}

static Err diff(const PolicyFlags *f, const char *a, const char *b, Fault *fault)
{
    char *dirs[2] = {NULL, NULL};
    char *built[2] = {NULL, NULL};
    Err err = policy_dir(f, a, &dirs[0], &built[0], fault);
    err = err ? err : policy_dir(f, b, &dirs[1], &built[1], fault);
    DiffTable table = {.json = f->json};
    err = err ? err : policy_diff(dirs[0], dirs[1], print_row, &table, fault);
    for (int i = 0; i < 2; i++) {
        if (built[i]) {
            (void)fs_remove_tree(built[i], NULL);
        }
        free(built[i]);
        free(dirs[i]);
    }
    return err;
}

/* ---- entry -------------------------------------------------------------------------------- */

static Err act(const PolicyFlags *f, const FlagRest *rest, bool *good, Fault *fault)
{
    int64_t version = 0;
    const char *verb = rest->count > 0 ? rest->items[0] : "";
    if (strcmp(verb, "verify") == 0 && rest->count <= 2) {
        if (f->version && !app_version(f->version, &version)) {
            return fault_set(fault, ERR_ARG, "name the version that the engines should report",
                             "--version wants a version, v12 or 12, not \"%s\"", f->version);
        }
        PolicyVerify v = {.run = f->run, .addrs = f->addrs, .version = version,
                          .json = f->json, .artifact = rest->count > 1 ? rest->items[1] : NULL};
        return policy_verify(&v, good, fault);
    }
    if (strcmp(verb, "show") == 0 && rest->count == 2 && f->log) {
        if (!app_version(rest->items[1], &version)) {
            return fault_set(fault, ERR_ARG, "rolltop policies FILE lists them",
                             "%s is no version of a policy", rest->items[1]);
        }
        return show(f, version, fault);
    }
    if (strcmp(verb, "diff") == 0 && rest->count == 3) {
        return diff(f, rest->items[1], rest->items[2], fault);
    }
    return fault_set(fault, ERR_ARG, "rolltop policy --help shows how",
                     "policy wants: show VERSION --log FILE, diff A B --log FILE, or verify");
}

static int run_policy(int argc, char **argv, bool list)
{
    static const FlagCommand command = {policy_usage, 0, -1, NULL, NULL};
    PolicyFlags f = {0};
    FlagSpec specs[POLICY_SPECS];
    policy_specs(&f, specs);
    FlagRest rest;
    int status;
    if (!app_parse(&command, specs, POLICY_SPECS, argc, argv, &rest, &status)) {
        return status;
    }
    Fault fault = {0};
    bool good = true;
    Err err = ERR_OK;
    if (list) {
        const char *file = rest.count == 1 ? rest.items[0] : f.log;
        err = file && rest.count <= 1
                  ? query_topic(file, "policies", f.json, stdout, &fault)
                  : fault_set(&fault, ERR_ARG, "rolltop policies FILE",
                              "policies wants one log file");
    } else {
        err = act(&f, &rest, &good, &fault);
    }
    flags_free(specs, POLICY_SPECS, &rest);
    return err ? app_fail(&fault, APP_USAGE) : good ? APP_OK : APP_NOT_REACHED;
}

const char *const *cmd_policy_verbs(size_t *count)
{
    static const char *const verbs[] = {"show", "diff", "verify"};
    *count = sizeof verbs / sizeof *verbs;
    return verbs;
}

int cmd_policy(int argc, char **argv)
{
    return run_policy(argc, argv, false);
}

int cmd_policies(int argc, char **argv)
{
    return run_policy(argc, argv, true);
}
