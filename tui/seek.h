/* Where a motion of time leads: the log's answer to what '@' and the paired keys ask for. */
#ifndef ROLLTOP_TUI_SEEK_H
#define ROLLTOP_TUI_SEEK_H

#include "tui/model.h"

/* From T, in a log whose last fact is at `last_us`; `scratch` is reset. False: no such moment. */
bool seek_find(View *view, Arena *scratch, const Seek *seek, int64_t t_us, int64_t last_us,
               int64_t *out);

#endif
