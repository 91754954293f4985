#include "core/policy/recover.h"

#include "core/policy/txn_planted.h"

void recover_begin(Recovery *recovery)
{
    *recovery = (Recovery){.committed = -1, .last_version = -1};
}

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

RecoverClose recover_row(Recovery *recovery, const LedgerRow *row)
{
    bool stands = row->decided == 1;
    if (TXN_PLANTED(PLANTED_RECOVER_FORWARD) && row->decided < 0) {
        stands = true;
    }
    if (TXN_PLANTED(PLANTED_RECOVER_BACK) && !row->ended) {
        stands = false;
    }
    bool moves = row->to_version != row->from_version;
    if (stands && moves) {
        recovery->committed = row->to_version;
    }
    recovery->last_txn = max_i64(recovery->last_txn, row->txn);
    recovery->last_version = max_i64(recovery->last_version, row->to_version);
    recovery->open += !row->ended;
    return (RecoverClose){.close = !row->ended, .state = !row->ended && moves,
                          .committed = stands};
}
