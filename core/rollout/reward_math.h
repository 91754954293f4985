/* The pieces of the math reward; private to core/rollout. */
#ifndef ROLLTOP_ROLLOUT_REWARD_MATH_H
#define ROLLTOP_ROLLOUT_REWARD_MATH_H

#include "core/base/str.h"

void math_normal_n(Str answer, Text *out); /* 5.5 */
/* LaTeX to text, as pylatexenc 2.10 does it for what answers hold; false: leave it as it was. */
bool math_latex_to_text(Str latex, Text *out);
/* 5.6 on two second normal forms. */
bool math_elements_equal(Str given, Str label);
/* (label)-(given) is zero by its value at sample points, where the rule lets it be tried. */
bool math_symbolic_equal(Str label, Str given);

#endif
