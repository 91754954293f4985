# What the operator said of the fleet outlives the core: engines added by hand are there again after
# a restart, removed and drained ones stay out, on engines of others and on local ones, until the
# opposite word.
set -u
R=${ROLLTOP:?}
T=$(mktemp -d)
XDG_STATE_HOME=$T XDG_RUNTIME_DIR=$T
export XDG_STATE_HOME XDG_RUNTIME_DIR
unset DYNAMO_ENGINE_ADDRS DYNAMO_ROLLOUT_URL
failed=0
core=
engines=
trap 'for p in $core $engines; do kill -9 $p; done 2>/dev/null; rm -rf "$T"' EXIT
fail() { # WORDS: what failed, and what the log knows
    echo "FAILED: $*"
    failed=1
    [ -f "$T/$log" ] && "$R" query "$T/$log" events | tail -25
    tail -5 "$T/out.run" 2>/dev/null
}
wait_for() { # SECONDS COMMAND…
    left=$(($1 * 5))
    shift
    while ! "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ $left -le 0 ] && return 1
        sleep 0.2
    done
}
engine() { # NAME PORT: its address in $where
    "$R" engine --model-path "$T/a.db.d/task/base" --incremental-streaming-output --port "$2" \
        >"$T/$1.out" 2>&1 &
    engines="$engines $!"
    wait_for 60 grep -q 'listening on http://' "$T/$1.out" || { fail "engine $1 starts"; exit 1; }
    where=$(sed -n 's/.*listening on http:\/\/\([0-9.:]*\).*/\1/p' "$T/$1.out" | head -1)
}
status() { "$R" ctl status | tr -d ' \t\n'; }
state() { status | grep -q "\"engine\":\"$1\",[^}]*\"state\":\"$2\""; }
serves() { status | grep -q "\"engine\":\"$1\",[^}]*\"serves\":true"; }
steps() { "$R" query "$T/$log" --json --sql "select count(*) n from step where outcome='ok'" | sed -n 's/.*"n":\([0-9]*\).*/\1/p'; }
more_steps() { [ "$(steps)" -gt "$1" ]; }
begin() { # FLAGS…: a run in $core, until it has made a step
    "$R" run --headless --log "$T/$log" --run-id words "$@" >"$T/out.run" 2>&1 </dev/null &
    core=$!
    from=$(steps 2>/dev/null)
    wait_for 90 more_steps "${from:-0}" || { fail "the run makes steps"; exit 1; }
}
lose_core() {
    kill -9 "$core"
    wait "$core" 2>/dev/null
    core=
}

log=a.db
"$R" demo --headless --steps 1 --engines 1 --keep --log "$T/a.db" >"$T/out" 2>&1 </dev/null
[ -d "$T/a.db.d/task/base" ] || { fail "the demo makes a base model"; cat "$T/out"; exit 1; }
task() { # LOG FLAGS…
    log=$1
    shift
    begin --hf-checkpoint "$T/a.db.d/task/base" --prompt-data "$T/a.db.d/task/train.jsonl" \
        --label-key label --rm-type digits --rollout-batch-size 8 --n-samples-per-prompt 4 \
        --rollout-max-response-len 16 --num-rollout 100000 --lr 1e-4 --publish-dtype f32 \
        --rollout-skip-special-tokens "$@"
}

# Engines of others: one added, one removed, one drained.
engine a 0; A=$where
engine b 0; B=$where
engine c 0; C=$where
engine d 0; D=$where
task run.db --rollout-external-engine-addrs "$A" "$B" "$C"
"$R" ctl engine add "$D" >/dev/null || fail "engine add"
"$R" ctl engine remove eng-01 >/dev/null || fail "engine remove"
"$R" ctl engine drain "$C" >/dev/null || fail "engine drain"
"$R" ctl engine remove eng-77 >/dev/null 2>&1 && fail "eng-77 is no engine: a refused word is none"
wait_for 60 serves eng-03 || fail "eng-03 serves"
wait_for 60 state eng-01 gone || fail "eng-01 leaves"
wait_for 60 state eng-02 gone || fail "eng-02 leaves"
lose_core
begin --resume
wait_for 60 serves eng-00 || fail "eng-00 serves again"
wait_for 60 serves eng-03 || fail "eng-03, added by hand, serves again"
state eng-01 gone || fail "eng-01, removed by hand, stays out"
state eng-02 gone || fail "eng-02, drained by hand, stays out"
"$R" ctl engine add "$B" >/dev/null || fail "the opposite word is taken"
"$R" ctl engine remove "$D" >/dev/null || fail "and the other one"
wait_for 60 serves eng-01 || fail "eng-01 is back"
wait_for 60 state eng-03 gone || fail "eng-03 leaves"
lose_core
begin --resume
wait_for 60 serves eng-01 || fail "eng-01 stays in"
state eng-03 gone || fail "eng-03 stays out"
state eng-02 gone || fail "eng-02 stays out for the second time"
lose_core

# Local engines: what was taken out is not started again.
task local.db --local-engines 3
"$R" ctl engine remove eng-01 >/dev/null || fail "a local engine is removed"
wait_for 60 state eng-01 gone || fail "it leaves"
lose_core
begin --resume
wait_for 60 serves eng-02 || fail "the other local engines serve"
state eng-01 gone || fail "the removed local engine is not started"
"$R" ctl engine add eng-01 >/dev/null || fail "until it is added"
wait_for 60 serves eng-01 || fail "then it serves"
lose_core
begin --resume
wait_for 60 serves eng-01 || fail "also after another restart"
"$R" query "$T/run.db" --json --sql "select count(*) n from (select sample_id from attempt where fate=1 group by sample_id having count(*) > 1)" |
    grep -q '"n":0' || fail "no sample is counted twice"
exit $failed
