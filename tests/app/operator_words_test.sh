# What the operator said of the fleet outlives the core: engines added by hand are there again after
# a restart, removed and drained ones stay out, on engines of others and on local ones, until the
# opposite word.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/fleet.sh"
small="--rollout-batch-size 8 --n-samples-per-prompt 4 --rollout-max-response-len 16"

# Engines of others: one added, one removed, one drained.
engine a 127.0.0.1 0 || { fail "engine a starts"; exit 1; }
A=127.0.0.1:$port
engine b 127.0.0.1 0 || { fail "engine b starts"; exit 1; }
B=127.0.0.1:$port
engine c 127.0.0.1 0 || { fail "engine c starts"; exit 1; }
C=127.0.0.1:$port
engine d 127.0.0.1 0 || { fail "engine d starts"; exit 1; }
D=127.0.0.1:$port
run run.db $small --rollout-external-engine-addrs "$A" "$B" "$C"
"$R" ctl engine add "$D" >/dev/null || fail "engine add"
"$R" ctl engine remove eng-01 >/dev/null || fail "engine remove"
"$R" ctl engine drain "$C" >/dev/null || fail "engine drain"
"$R" ctl engine remove eng-77 >/dev/null 2>&1 && fail "eng-77 is no engine: a refused word is none"
wait_for 60 serves eng-03 || fail "eng-03 serves"
wait_for 60 state eng-01 gone || fail "eng-01 leaves"
wait_for 60 state eng-02 gone || fail "eng-02 leaves"
lose_core
begin run.db --resume
wait_for 60 serves eng-00 || fail "eng-00 serves again"
wait_for 60 serves eng-03 || fail "eng-03, added by hand, serves again"
state eng-01 gone || fail "eng-01, removed by hand, stays out"
state eng-02 gone || fail "eng-02, drained by hand, stays out"
"$R" ctl engine add "$B" >/dev/null || fail "the opposite word is taken"
"$R" ctl engine remove "$D" >/dev/null || fail "and the other one"
wait_for 60 serves eng-01 || fail "eng-01 is back"
wait_for 60 state eng-03 gone || fail "eng-03 leaves"
lose_core
begin run.db --resume
wait_for 60 serves eng-01 || fail "eng-01 stays in"
state eng-03 gone || fail "eng-03 stays out"
state eng-02 gone || fail "eng-02 stays out for the second time"
lose_core

# Local engines: what was taken out is not started again.
run local.db $small --local-engines 3
"$R" ctl engine remove eng-01 >/dev/null || fail "a local engine is removed"
wait_for 60 state eng-01 gone || fail "it leaves"
lose_core
begin local.db --resume
wait_for 60 serves eng-02 || fail "the other local engines serve"
state eng-01 gone || fail "the removed local engine is not started"
"$R" ctl engine add eng-01 >/dev/null || fail "until it is added"
wait_for 60 serves eng-01 || fail "then it serves"
lose_core
begin local.db --resume
wait_for 60 serves eng-01 || fail "also after another restart"
end_run 32
log=run.db
twice="select sample_id from attempt where fate=1 group by sample_id having count(*) > 1"
[ "$(number "select count(*) n from ($twice)")" -eq 0 ] || fail "a sample is counted twice"
exit $failed
