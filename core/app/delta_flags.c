#include "core/app/delta_flags.h"

#include <string.h>

static Err check_transport(const RunFlags *f, Fault *fault)
{
    const char *way = f->update_weight_transport;
    if (strcmp(way, "disk") != 0 && strcmp(way, "nccl") != 0) {
        return fault_set(fault, ERR_ARG, "use disk", "--update-weight-transport %s is not known",
                         way);
    }
    return ERR_OK;
}

/* Settings of deltas where none are sent would be lost without a word. */
static Err check_unused(const RunFlags *f, Fault *fault)
{
    const char *flag = f->delta_encoding  ? "encoding"
                       : f->delta_sum     ? "checksum"
                       : f->full_every_given ? "full-every"
                                             : NULL;
    return flag ? fault_set(fault, ERR_ARG, "give --update-weight-mode delta, or drop it",
                            "--update-weight-delta-%s is for deltas, and --update-weight-mode is "
                            "full", flag)
                : ERR_OK;
}

Err delta_flags_fill(const RunFlags *f, RunConfig *c, Fault *fault)
{
    Err err = check_transport(f, fault);
    bool delta = strcmp(f->update_weight_mode, "delta") == 0;
    if (err == ERR_OK && !delta && strcmp(f->update_weight_mode, "full") != 0) {
        err = fault_set(fault, ERR_ARG, "use full or delta",
                        "--update-weight-mode %s is not known", f->update_weight_mode);
    }
    if (err == ERR_OK && !delta) {
        err = check_unused(f, fault);
    }
    const char *sum = f->delta_sum ? f->delta_sum : "xxh3-128";
    const char *encoding = f->delta_encoding ? f->delta_encoding : "xor";
    err = err ? err : delta_encoding_parse(encoding, &c->delta_encoding, fault);
    err = err ? err : delta_sum_parse(sum, &c->delta_sum, fault);
    c->local_checkpoint_dir = f->local_checkpoint_dir;
    c->delta = delta || f->local_checkpoint_dir; /* complete versions can be pulled as well */
    c->delta_full_every = delta ? f->full_every : 1;
    if (err == ERR_OK && c->local_checkpoint_dir && c->local_checkpoint_dir[0] != '/') {
        err = fault_set(fault, ERR_ARG, "give the whole path, as it is on the engines' hosts",
                        "--update-weight-local-checkpoint-dir %s is a relative path",
                        c->local_checkpoint_dir);
    }
    bool ours = c->local_engines > 0 && !c->engine_command;
    bool nobody = delta && !ours && !c->local_checkpoint_dir;
    if (err == ERR_OK && nobody) {
        err = fault_set(fault, ERR_ARG,
                        "give --update-weight-local-checkpoint-dir DIR: a directory of each "
                        "engine's host that deltas are applied to",
                        "--update-weight-mode delta: no engine here can follow a delta");
    }
    return err;
}
