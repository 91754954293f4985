#include "core/loop/take_back.h"

typedef enum Look { LOOKS_WELL, LOOKS_BAD, IS_BAD } Look;

static Look by_state(const TakeBackEngine *e, int64_t now_us)
{
    switch (e->state) {
    case ENGINE_DEAD: return IS_BAD;
    case ENGINE_STUCK: return now_us - e->since_us >= TAKE_BACK_SETTLE_US ? IS_BAD : LOOKS_BAD;
    case ENGINE_STALE: return LOOKS_BAD; /* what is about to be called dead */
    case ENGINE_STARTING:
    case ENGINE_UP:
    case ENGINE_BUSY:
    case ENGINE_SLOW:
    case ENGINE_PAUSED:
    case ENGINE_LOADING:
    case ENGINE_FENCED:
    case ENGINE_GONE: break;
    }
    return LOOKS_WELL;
}

/* One that was late before is waited for longer, and is slow meanwhile: it may stand still, too. */
static Look look_at(const TakeBackEngine *e, int64_t now_us)
{
    const Look look = by_state(e, now_us);
    return look == LOOKS_WELL && e->silent ? LOOKS_BAD : look;
}

int take_back_judge(int64_t *many_us, const TakeBackEngine *engines, int count, int64_t now_us,
                    bool *taken)
{
    int fleet = 0;
    int bad = 0;
    for (int i = 0; i < count; i++) {
        const TakeBackEngine *e = &engines[i];
        const bool known = e->known || (by_state(e, now_us) != LOOKS_WELL &&
                                        now_us - e->since_us >= TAKE_BACK_BELIEVED_US);
        taken[i] = known && look_at(e, now_us) == IS_BAD;
        if (!known && e->state != ENGINE_GONE) {
            fleet++;
            bad += look_at(e, now_us) != LOOKS_WELL;
        }
    }
    *many_us = 2 * bad > fleet ? now_us : *many_us;
    const bool wait = *many_us > 0 && now_us - *many_us < TAKE_BACK_AGAIN_US;
    int waiting = 0;
    for (int i = 0; i < count; i++) {
        if (!taken[i] && look_at(&engines[i], now_us) == IS_BAD) {
            taken[i] = !wait;
            waiting += wait;
        }
    }
    return waiting > 0 ? bad : 0;
}
