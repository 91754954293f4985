/* What makes a saved state trustworthy: `state.json` beside its files names each with its size and
 * XXH3-128. A directory without that file is an ordinary checkpoint, and nothing is checked. */
#ifndef ROLLTOP_TRAIN_SEAL_H
#define ROLLTOP_TRAIN_SEAL_H

#include "core/base/err.h"

/* Reads every file of `dir` once and writes its state.json (synced). */
Err seal_write(const char *dir, Fault *fault);
/* ERR_FORMAT: a file is missing, has another size or another digest; the sentence names it.
 * Reads every byte; ERR_OK at once when there is no state.json. */
Err seal_check(const char *dir, Fault *fault);

#endif
