#!/bin/sh
# Figures of the policy transaction. usage: policy.sh BUILD [EPISODES]
# EPISODES of 64 simulated engines, about four transactions with faults each (271000: a million).
set -u
build=${1:?usage: policy.sh BUILD [EPISODES]}
episodes=${2:-2400}
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
XDG_STATE_HOME=$T XDG_RUNTIME_DIR=$T
export XDG_STATE_HOME XDG_RUNTIME_DIR
echo "simulated transactions: rolltop sim --seed 1 --count $episodes --engines 64"
"$build/rolltop" sim --seed 1 --count "$episodes" --engines 64
echo "delta: bench_delta 64"
[ -x "$build/tests/bench_delta" ] && "$build/tests/bench_delta" 64
for engines in 1 3 8; do
    "$build/rolltop" demo --headless --steps 25 --engines $engines --keep --log "$T/$engines.db" \
        >/dev/null 2>&1 </dev/null
    echo "gate closed, $engines local engines, ms (with loading; without the slowest engine's loading):"
    "$build/rolltop" query "$T/$engines.db" --sql "
        with t as (select pause_us p, pause_us-(select max(took_us) from txn_answer a
                     where a.txn_id=txn.txn_id and a.phase=(select code from enumeration
                     where kind='txn_phase' and word='apply')) q,
                   row_number() over (order by pause_us) r, count(*) over () n
                   from txn where outcome='committed' and to_version<>from_version and txn_id>1)
        select n updates, round(max(case when r=(n+1)/2 then p end)/1000.0,1) median_ms,
               round(max(p)/1000.0,1) greatest_ms, round(avg(q)/1000.0,1) without_loading_ms from t"
done
