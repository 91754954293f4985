#include "core/app/inflight_flags.h"

#include <string.h>

static int place_of(const char *const *words, const char *word)
{
    int at = 0;
    while (words[at] && strcmp(words[at], word) != 0) {
        at++;
    }
    return words[at] ? at : -1;
}

static Err fill_mode(const RunFlags *f, RunConfig *c, Fault *fault)
{
    static const char *const modes[] = {"abort", "resume", "in-place", NULL};
    const char *word = f->update_inflight ? f->update_inflight
                       : f->partial_rollout ? "resume" : "abort";
    int mode = place_of(modes, word);
    if (mode < 0) {
        return fault_set(fault, ERR_ARG, NULL,
                         "--update-inflight %s is none of abort, resume, in-place", word);
    }
    c->inflight = (UpdateInflight)mode;
    if (f->partial_rollout && c->inflight == INFLIGHT_ABORT) {
        return fault_set(fault, ERR_ARG, "drop one of the two",
                         "--partial-rollout goes on with samples past an update, "
                         "--update-inflight abort generates them anew");
    }
    if (f->max_staleness_given && f->max_staleness == 0 && c->inflight != INFLIGHT_ABORT) {
        return fault_set(fault, ERR_ARG, "give --max-staleness 1 or more, or --update-inflight "
                         "abort", "--max-staleness 0 lets no token be older than its batch's "
                         "policy, and %s keeps tokens past an update",
                         f->update_inflight ? "--update-inflight" : "--partial-rollout");
    }
    c->max_staleness = f->max_staleness_given ? f->max_staleness
                       : c->inflight == INFLIGHT_ABORT ? 0 : 1;
    c->mask_offpolicy = f->mask_offpolicy;
    return ERR_OK;
}

static Err fill_unary(const RunFlags *f, RunConfig *c, Fault *fault)
{
    static const char *const words[] = {"auto", "on", "off", NULL};
    enum { UNARY_AUTO, UNARY_ON, UNARY_OFF };
    int unary = place_of(words, f->generate_unary ? f->generate_unary : "auto");
    c->direct = c->local_engines == 0 && !c->rollout_url;
    if (unary < 0) {
        return fault_set(fault, ERR_ARG, NULL, "--generate-unary %s is none of auto, on, off",
                         f->generate_unary);
    }
    if (unary == UNARY_ON && !c->direct && !c->router) {
        return fault_set(fault, ERR_ARG, "leave it out, or give engine addresses and no frontend",
                         "--generate-unary on: %s only streams",
                         c->rollout_url ? "the frontend" : "the frontend of local engines");
    }
    c->unary = unary == UNARY_ON || (unary == UNARY_AUTO && c->direct);
    return ERR_OK;
}

Err inflight_flags_fill(const RunFlags *flags, RunConfig *config, Fault *fault)
{
    Err err = fill_mode(flags, config, fault);
    return err ? err : fill_unary(flags, config, fault);
}
