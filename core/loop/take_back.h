/* May the samples of engines that look dead or stuck be given to others now? Pure. When most of the
 * fleet looks so at once, it is rather this machine or the network than the engines, and whoever
 * would take the samples is in doubt as well: then they wait, until the picture is another one or
 * so much time has passed that it is believed. */
#ifndef ROLLTOP_LOOP_TAKE_BACK_H
#define ROLLTOP_LOOP_TAKE_BACK_H

#include "store/store.h"

#define TAKE_BACK_BELIEVED_US 60000000 /* for so long: it is as it looks */
#define TAKE_BACK_SETTLE_US 1000000    /* of STUCK: others that stand still show it by then, too */
#define TAKE_BACK_AGAIN_US 3000000     /* … and who comes back with others shows that */

typedef struct TakeBackEngine {
    EngineState state;
    int64_t since_us; /* in that state */
    bool silent;      /* nothing came from it for --probe-stale-ms, whatever its state */
    bool known;       /* it was taken back before, or its process has ended: no matter of looks */
} TakeBackEngine;

/* taken[i]: engine i is dead or stuck, and what it holds may go to others. *many_us, from 0 on, is
 * when too many looked bad last. Gives how many do now, if any has to wait because of that. */
int take_back_judge(int64_t *many_us, const TakeBackEngine *engines, int count, int64_t now_us,
                    bool *taken);

#endif
