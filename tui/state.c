#include "tui/state.h"

static const StateLook looks[] = {
    [ENGINE_UP] = {'+', "OK", ROLE_OK, 4},
    [ENGINE_BUSY] = {'+', "BUSY", ROLE_OK, 4},
    [ENGINE_SLOW] = {'!', "SLOW", ROLE_WARN, 1},
    [ENGINE_STUCK] = {'x', "STUCK", ROLE_CRIT, 0},
    [ENGINE_PAUSED] = {'=', "PAUSE", ROLE_PAUSED, 3},
    [ENGINE_LOADING] = {'~', "SYNC", ROLE_PROGRESS, 3},
    [ENGINE_STALE] = {'?', "STALE", ROLE_STALE, 2},
    [ENGINE_DEAD] = {'x', "DEAD", ROLE_CRIT, 0},
    [ENGINE_FENCED] = {'#', "FENCED", ROLE_WARN, 1},
    [ENGINE_STARTING] = {'^', "START", ROLE_PROGRESS, 3},
    [ENGINE_GONE] = {'-', "GONE", ROLE_GONE, 5},
};

const StateLook *state_look(EngineState state)
{
    static const StateLook foreign = {'?', "?", ROLE_STALE, 2};
    size_t index = (size_t)state;
    return index < sizeof looks / sizeof looks[0] ? &looks[index] : &foreign;
}

EngineState state_shown(const EngineRow *row, int64_t t_us)
{
    bool worse = row->state == ENGINE_DEAD || row->state == ENGINE_GONE ||
                 row->state == ENGINE_STUCK || row->state == ENGINE_FENCED ||
                 row->state == ENGINE_STARTING || row->state == ENGINE_LOADING;
    if (!worse && t_us - row->seen_us > STALE_LIMIT_US) {
        return ENGINE_STALE;
    }
    return row->state;
}

bool state_silent(EngineState shown)
{
    return shown == ENGINE_DEAD || shown == ENGINE_GONE;
}

char severity_letter(Severity severity)
{
    return severity == SEVERITY_CRIT ? 'C' : severity == SEVERITY_WARN ? 'W' : 'I';
}

const char *severity_word(Severity severity)
{
    return severity == SEVERITY_CRIT   ? "critical"
           : severity == SEVERITY_WARN ? "warning"
                                       : "info";
}

Role severity_role(Severity severity)
{
    return severity == SEVERITY_CRIT   ? ROLE_CRIT
           : severity == SEVERITY_WARN ? ROLE_WARN
                                       : ROLE_INFO;
}

char phase_letter(LoopPhase phase)
{
    switch (phase) {
    case PHASE_INIT: return 'i';
    case PHASE_EVAL: return 'e';
    case PHASE_GENERATE: return 'g';
    case PHASE_SCORE: return 's';
    case PHASE_TRAIN: return 't';
    case PHASE_PUBLISH: return 'w';
    case PHASE_SYNC: return 'y';
    case PHASE_SAVE: return 'v';
    case PHASE_PAUSE: return '=';
    case PHASE_DONE: return 'd';
    }
    return '?';
}

const char *phase_word(LoopPhase phase)
{
    switch (phase) {
    case PHASE_INIT: return "INIT";
    case PHASE_EVAL: return "EVAL";
    case PHASE_GENERATE: return "GENERATE";
    case PHASE_SCORE: return "SCORE";
    case PHASE_TRAIN: return "TRAIN";
    case PHASE_PUBLISH: return "PUBLISH";
    case PHASE_SYNC: return "SYNC";
    case PHASE_SAVE: return "SAVE";
    case PHASE_PAUSE: return "PAUSE";
    case PHASE_DONE: return "DONE";
    }
    return "?";
}

LoopPhase phase_after(LoopPhase phase)
{
    switch (phase) {
    case PHASE_INIT: return PHASE_GENERATE;
    case PHASE_EVAL: return PHASE_GENERATE;
    case PHASE_GENERATE: return PHASE_SCORE;
    case PHASE_SCORE: return PHASE_TRAIN;
    case PHASE_TRAIN: return PHASE_PUBLISH;
    case PHASE_PUBLISH: return PHASE_SYNC;
    case PHASE_SYNC: return PHASE_GENERATE;
    case PHASE_SAVE: return PHASE_GENERATE;
    case PHASE_PAUSE: return PHASE_GENERATE;
    case PHASE_DONE: return PHASE_DONE;
    }
    return PHASE_DONE;
}
