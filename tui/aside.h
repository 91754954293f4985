/* What the console does beside the screen: the side file of named moments, copies that are too
 * long for a clipboard, the user's own commands. */
#ifndef ROLLTOP_TUI_ASIDE_H
#define ROLLTOP_TUI_ASIDE_H

#include "tui/model.h"
#include "tui/term.h"

/* LOG.marks beside the log, one "MICROSECONDS NAME" a line; never in the log. Lines that cannot
 * be read are left out. */
void marks_load(Model *model);
Err marks_save(const Model *model, Fault *fault);
/* Writes a copy of the screen to a new file in $TMPDIR or /tmp, mode 0600; its name in `path`. */
Err copy_to_file(Str text, char *path, size_t size, Fault *fault);
/* Writes the marked rows of the pane in focus, or all that are shown, with the names of their
 * fields into model->export_path, a new file of mode 0600; complete or not at all. */
Err export_rows(const Model *model, const Snapshot *snap, int *rows, Fault *fault);
/* Runs the user's command in the terminal, with ROLLTOP_* in its environment, and waits for
 * Enter. The exit status, -1 when it could not be started. */
int shell_run(Term *term, const Model *model, const Snapshot *snap, int64_t now_us);

#endif
