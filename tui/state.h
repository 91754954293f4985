/* The words, signs and ranks of what an engine, a phase, a sample can be: one table each, so that
 * no two states look the same without colour. */
#ifndef ROLLTOP_TUI_STATE_H
#define ROLLTOP_TUI_STATE_H

#include "store/view.h"
#include "tui/role.h"

enum { STALE_LIMIT_US = 5000000, LOST_LIMIT_US = 5000000 };

typedef struct StateLook {
    char sign;
    const char *word; /* at most six letters */
    Role role;
    int rank; /* order by severity: 0 broken … 5 gone; above 2 nothing is wrong */
} StateLook;

const StateLook *state_look(EngineState state);
/* The state that may honestly be shown at T: an engine last heard of more than STALE_LIMIT_US ago
 * is stale, whatever its last state was, unless that was worse. */
EngineState state_shown(const EngineRow *row, int64_t t_us);
/* Dead or gone: what its load was says nothing about now, and is shown as unknown. */
bool state_silent(EngineState shown);
char severity_letter(Severity severity);
const char *severity_word(Severity severity); /* "critical", "warning", "info" */
Role severity_role(Severity severity);
char phase_letter(LoopPhase phase); /* in the waterfall of finished steps */
const char *phase_word(LoopPhase phase); /* upper case */
LoopPhase phase_after(LoopPhase phase);

#endif
