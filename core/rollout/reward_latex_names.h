/* Private to reward_latex.c. */
#ifndef ROLLTOP_ROLLOUT_REWARD_LATEX_NAMES_H
#define ROLLTOP_ROLLOUT_REWARD_LATEX_NAMES_H

#include <stddef.h>

typedef struct LatexName {
    const char *macro;
    const char *text;
} LatexName;

extern const LatexName latex_names[];
extern const size_t latex_names_count;

#endif
