# Shared by the scripts here that run fleets of real processes; sourced, with $R the program. Makes a
# folder $T, a base model $T/task/base with its prompts, and ends what it started.
T=$(mktemp -d)
XDG_STATE_HOME=$T XDG_RUNTIME_DIR=$T
export XDG_STATE_HOME XDG_RUNTIME_DIR
unset DYNAMO_ENGINE_ADDRS DYNAMO_ROLLOUT_URL
H=$(dirname "$R")/tests/app_helper
failed=0
log=none.db
core=
others=
trap 'kill -9 $core $others 2>/dev/null; rm -rf "$T"' EXIT
trap 'exit 1' HUP INT TERM
fail() { # WORDS: what failed, and what the log and the core know
    echo "FAILED: $*"
    failed=1
    [ -f "$T/$log" ] && "$R" query "$T/$log" events | grep -v '  step  \|  policy  ' | tail -25
    "$R" ctl status 2>/dev/null
    tail -5 "$T/out" 2>/dev/null
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
engine() { # NAME HOST PORT FLAGS…: starts one; its pid in $pid, its port in $port
    name=$1 host=$2 wanted=$3
    shift 3
    "$R" engine --model-path "$T/task/base" --incremental-streaming-output --host "$host" \
        --port "$wanted" "$@" >"$T/$name.out" 2>&1 </dev/null &
    pid=$!
    others="$others $pid"
    wait_for 60 grep -q 'listening on http://' "$T/$name.out" || return 1
    port=$(sed -n 's/.*listening on http:\/\/.*:\([0-9]*\)[^0-9]*$/\1/p' "$T/$name.out" | head -1)
}
status() { "$R" ctl status | tr -d ' \t\n'; }
state() { status | grep -q "\"address\":\"$1\",\"state\":\"$2\""; }
serves() { status | grep -q "\"address\":\"$1\",[^}]*\"serves\":true"; }
number() { "$R" query "$T/$log" --json --sql "$1" | sed -n 's/.*"n":\([0-9]*\).*/\1/p'; }
event() { [ "$(number "select count(*) n from event where text like '%$1%'")" -gt 0 ]; }
steps() { number "select count(*) n from step where outcome='ok'"; }
more_steps() { [ "$(steps)" -gt "$1" ]; }
goes_on() {
    from=$(steps)
    wait_for 120 more_steps $((${from:-0} + 1)) || fail "steps go on after $1"
}
begin() { # LOG FLAGS…: a run in $core that makes steps
    log=$1
    shift
    from=$(steps 2>/dev/null)
    "$R" run --headless --log "$T/$log" "$@" >"$T/out" 2>&1 </dev/null &
    core=$!
    wait_for 120 more_steps "${from:-0}" || { fail "the run makes a step"; exit 1; }
}
run() { # LOG FLAGS…: a new one on the task
    begin "$@" --hf-checkpoint "$T/task/base" --prompt-data "$T/task/train.jsonl" \
        --label-key label --rm-type digits --num-rollout 100000 --lr 1e-4 --publish-dtype f32 \
        --rollout-skip-special-tokens --discover-interval 1
}
lose_core() {
    kill -9 "$core"
    wait "$core" 2>/dev/null
    core=
}
end_run() { # SAMPLES: of a step
    "$R" ctl stop >/dev/null || fail "stop"
    wait "$core"
    [ $? -le 1 ] || fail "the run ends well"
    core=
    for bad in "select count(*) n from step where ended_us is not null and outcome not in ('ok','stopped','interrupted')" \
        "select count(*) n from step where step >= 0 and outcome='ok' and samples <> $1" \
        "select count(*) n from (select sample_id from attempt where fate=1 group by sample_id having count(*) > 1)"; do
        [ "$(number "$bad")" -eq 0 ] || fail "$log: $bad"
    done
}

"$R" demo --headless --steps 1 --engines 1 --keep --log "$T/a.db" >"$T/out" 2>&1 </dev/null
[ -d "$T/a.db.d/task/base" ] || { fail "the demo makes a base model"; exit 1; }
mv "$T/a.db.d/task" "$T/task"
