/* How long a sample may wait for its first token where a frontend of others chose its engine, while
 * that frontend may give work to an engine that is paused because it does not hold the policy: such
 * an engine takes requests and answers none, and cannot be told to give them back (SGLang loses an
 * abort of what waits behind a pause). Pure. */
#ifndef ROLLTOP_LOOP_FIRST_TOKEN_H
#define ROLLTOP_LOOP_FIRST_TOKEN_H

#include <stdint.h>

/* Twice the longest wait that led to a token lately, since others may stand in a queue, and 1 s at
 * least. From the fifth attempt of the sample on twice as long with each, since a frontend may send
 * the same prompt to the same engine always. Never more than `silence_us`, which is also the answer
 * while no wait is known (0). */
int64_t first_token_bound_us(int64_t longest_us, int attempt, int64_t silence_us);

#endif
