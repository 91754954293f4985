/* Deltas in a run: how a version is published beside its complete checkpoint, which engines follow
 * it with a copy of their own, and what of old versions stays on disk (core/policy/delta_plan.h
 * has the rules and the layout of WORK/policies). Local engines keep their copies in WORK/copies,
 * others where --update-weight-local-checkpoint-dir says. */
#include "core/loop/driver_private.h"

#include "core/base/fs.h"
#include "core/policy/delta.h"
#include "core/policy/delta_plan.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

enum { KEPT_MAX = 4096 };

typedef struct Publication { /* runs beside the loop: it reads both checkpoints */
    uv_work_t work;
    Driver *d;
    int64_t version;
    bool delta;
    DeltaEncoding encoding;
    DeltaSum sum;
    char *policies, *base_dir, *dir;
    char base_digest[DIGEST_TEXT], digest[DIGEST_TEXT];
    DeltaStats stats;
    Err err;
    Fault fault;
    void (*then)(Driver *d);
} Publication;

/* ---- start -------------------------------------------------------------------------------- */

/* Copies end with the engines that kept them, and a chain goes on only from what this core has
 * published itself: versions kept as deltas stay, half-written ones go. */
Err driver_delta_start(Driver *d, Fault *fault)
{
    char *copies = fs_join(d->config->work_dir, "copies");
    char *full = fs_join(d->config->work_dir, "policies/full");
    char *chain = fs_join(d->config->work_dir, "policies/chain");
    d->delta = (DriverDelta){.chain = -1, .full = -1, .published = -1, .base = -1};
    Err err = fs_remove_tree(copies, fault);
    err = err ? err : fs_remove_tree(full, fault);
    DIR *dir = opendir(chain);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        if (str_starts(str_from(entry->d_name), STR(".weight_v"))) {
            char *path = fs_join(chain, entry->d_name);
            err = err ? err : fs_remove_tree(path, fault);
            free(path);
        }
    }
    if (dir) {
        closedir(dir);
    }
    free(copies);
    free(full);
    free(chain);
    return err;
}

/* ---- engines ------------------------------------------------------------------------------ */

static bool own_engine(const Driver *d, int engine)
{
    return d->seats[engine].part && !d->config->engine_command;
}

bool driver_delta_pulls(const Driver *d, int engine, int64_t version)
{
    const Seat *seat = &d->seats[engine];
    bool able = own_engine(d, engine) || d->config->local_checkpoint_dir;
    return d->config->delta && able && !seat->no_pull && !seat->pulling &&
           version == d->delta.published;
}

char *driver_delta_copy(const Driver *d, int engine)
{
    return own_engine(d, engine)
               ? xasprintf("%s/copies/%s", d->config->work_dir, d->seats[engine].part->name)
               : xstrdup(d->config->local_checkpoint_dir);
}

char *driver_delta_source(const Driver *d, int64_t base)
{
    return fs_join(d->config->work_dir, base >= 0 ? "policies/chain" : "policies/full");
}

/* ---- publication -------------------------------------------------------------------------- */

static void publish_work(uv_work_t *work)
{
    Publication *p = work->data;
    char name[32];
    char *chain = fs_join(p->policies, "chain");
    char *full = fs_join(p->policies, "full");
    (void)str_format(name, sizeof name, "v%06lld", (long long)p->version);
    p->err = delta_publish_full(full, p->version, name, &p->fault);
    if (p->err == ERR_OK && p->delta) {
        DeltaProof proof = {p->base_digest, p->digest[0] ? p->digest : NULL};
        p->err = delta_publish(p->base_dir, p->dir, chain, p->version, p->version - 1,
                               p->encoding, p->sum, &proof, &p->stats, &p->fault);
    } else if (p->err == ERR_OK) {
        p->err = delta_publish_full(chain, p->version, name, &p->fault);
    }
    free(chain);
    free(full);
}

static void published(uv_work_t *work, int status)
{
    Publication *p = work->data;
    Driver *d = p->d;
    DriverDelta *delta = &d->delta;
    bool well = status == 0 && p->err == ERR_OK;
    *delta = (DriverDelta){.chain = well ? p->version : -1,
                           .full = well && !p->delta ? p->version : delta->full,
                           .published = well ? p->version : -1,
                           .base = well && p->delta ? p->version - 1 : -1};
    if (!well && !d->torn_down) { /* nobody needs it: the complete checkpoint is there */
        driver_event(d, SEVERITY_WARN, "policy", 0,
                     "v%lld goes out complete, without a delta or copies: %s",
                     (long long)p->version, p->fault.sentence);
    } else if (p->delta && !d->torn_down) {
        double bytes = (double)p->stats.bytes;
        driver_metric(d, loop_step(d->loop), "perf/update_weights_density",
                      bytes > 0 ? (double)p->stats.changed_bytes / bytes : 0.0);
        driver_metric(d, loop_step(d->loop), "perf/update_weights_wire_bytes",
                      (double)p->stats.wire_bytes);
    }
    void (*then)(Driver *) = p->then;
    free(p->policies);
    free(p->base_dir);
    free(p->dir);
    free(p);
    if (!d->torn_down) {
        then(d);
    }
}

static int count_followers(const Driver *d, int64_t version)
{
    int followers = 0;
    for (int i = 0; i < d->seat_count; i++) {
        const Seat *seat = &d->seats[i];
        followers += seat->follows == version && seat->incarnation > 0 && !seat->no_pull;
    }
    return followers;
}

void driver_delta_publish(Driver *d, int64_t version, void (*then)(Driver *d))
{
    if (!d->config->delta) {
        then(d);
        return;
    }
    int64_t committed = loop_committed(d->loop);
    bool known = d->policy.has_committed && d->policy.committed.digest[0];
    DeltaPlan plan = {.version = version, .committed = committed, .chain = d->delta.chain,
                      .full = d->delta.full, .full_every = d->config->delta_full_every,
                      .followers = count_followers(d, committed), .base_known = known};
    Publication *p = xcalloc(1, sizeof *p);
    p->work.data = p;
    p->d = d;
    p->version = version;
    p->delta = delta_plan(&plan);
    p->encoding = d->config->delta_encoding;
    p->sum = d->config->delta_sum;
    p->policies = fs_join(d->config->work_dir, "policies");
    p->base_dir = driver_path(d, "policies", "v", version - 1);
    p->dir = driver_path(d, "policies", "v", version);
    if (known) {
        memcpy(p->base_digest, d->policy.committed.digest, sizeof p->base_digest);
    }
    memcpy(p->digest, d->policy.digest, sizeof p->digest);
    p->then = then;
    if (uv_queue_work(&d->uv, &p->work, publish_work, published) != 0) {
        p->err = fault_set(&p->fault, ERR_MEMORY, NULL, "no thread to publish with");
        published(&p->work, -1);
    }
}

const char *driver_delta_kind(const Driver *d, int64_t version)
{
    return version == d->delta.published && d->delta.base >= 0 ? "delta" : "full";
}

/* ---- what is kept ------------------------------------------------------------------------- */

static int by_version(const void *a, const void *b)
{
    const DeltaKept *x = a;
    const DeltaKept *y = b;
    return (x->version > y->version) - (x->version < y->version);
}

static DeltaKept *kept_of(DeltaKept *kept, int *count, int64_t version)
{
    for (int i = 0; i < *count; i++) {
        if (kept[i].version == version) {
            return &kept[i];
        }
    }
    if (*count == KEPT_MAX) {
        return NULL;
    }
    kept[*count] = (DeltaKept){.version = version};
    return &kept[(*count)++];
}

/* Complete checkpoints ("v") or the chain's deltas ("weight_v"; a link there is no delta). */
static void list_kept(const char *folder, const char *prefix, bool chain, DeltaKept *kept,
                      int *count)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        int64_t version = 0;
        Str name = str_from(entry->d_name);
        if (!str_starts(name, str_from(prefix)) ||
            !str_to_i64(str_slice(name, strlen(prefix), name.n), &version) ||
            (chain && entry->d_type == DT_LNK)) {
            continue;
        }
        DeltaKept *k = kept_of(kept, count, version);
        if (k && chain) {
            k->delta = true;
        } else if (k) {
            k->dir = true;
        }
    }
    if (dir) {
        closedir(dir);
    }
}

static void remove_version(const Driver *d, const char *folder, const char *prefix,
                           int64_t version)
{
    char *path = driver_path(d, folder, prefix, version);
    Fault fault = {0};
    if (fs_remove_tree(path, &fault) != ERR_OK) {
        driver_event((Driver *)(uintptr_t)d, SEVERITY_WARN, "policy", 0, "%s", fault.sentence);
    }
    free(path);
}

static void drop(Driver *d, const DeltaKept *k)
{
    if (k->dir && !k->keep_dir) { /* its links first: none of them may lead nowhere */
        remove_version(d, "policies/full", "weight_v", k->version);
        if (!k->delta) {
            remove_version(d, "policies/chain", "weight_v", k->version);
        }
        remove_version(d, "policies", "v", k->version);
    }
    if (k->delta && !k->keep_delta) {
        remove_version(d, "policies/chain", "weight_v", k->version);
    }
    if (!k->keep_dir && !k->keep_delta) {
        PolicyStateFact fact = {.version = k->version, .t_us = clock_wall_us(),
                                .state = POLICY_RETIRED,
                                .reason = "too old to keep"};
        store_put_policy_state(d->store, &fact);
    }
}

void driver_retain(Driver *d, int64_t committed)
{
    DeltaKept *kept = xcalloc(KEPT_MAX, sizeof *kept);
    int count = 0;
    char *policies = fs_join(d->config->work_dir, "policies");
    char *chain = fs_join(policies, "chain");
    list_kept(policies, "v", false, kept, &count);
    list_kept(chain, "weight_v", true, kept, &count);
    qsort(kept, (size_t)count, sizeof *kept, by_version);
    delta_retain(kept, count, committed, d->config->keep_policies);
    for (int i = 0; i < count; i++) {
        drop(d, &kept[i]);
    }
    free(chain);
    free(policies);
    free(kept);
}

bool driver_policy_kept(const Driver *d, int64_t version)
{
    char *dir = driver_path(d, "policies", "v", version);
    char *chain = fs_join(d->config->work_dir, "policies/chain");
    bool kept = fs_is_dir(dir) || delta_reachable(chain, version);
    free(chain);
    free(dir);
    return kept;
}
