# Shared by the scripts that run fleets of real processes; sourced, with $R the program. Beside what
# script.sh gives: a base model $T/task/base with its prompts, engines, and a run with its log.
. "$(dirname "$0")/../lib/script.sh"
log=none.db # of the run, in $T
fail() { # WORDS: what failed, and what the log and the core know
    echo "FAILED: $*"
    failed=1
    [ -f "$T/$log" ] && "$R" query "$T/$log" events | grep -v '  step  \|  policy  ' | tail -25
    "$R" ctl status 2>/dev/null
    tail -5 "$T/out" 2>/dev/null
}
engine() { # NAME HOST PORT FLAGS…: starts one; its pid in $pid, its port in $port
    name=$1 host=$2 wanted=$3
    shift 3
    "$R" engine --model-path "${model:-$T/task/base}" --incremental-streaming-output --host "$host" \
        --port "$wanted" "$@" >"$T/$name.out" 2>&1 </dev/null &
    pid=$!
    others="$others $pid"
    wait_for 60 listens "$name" || return 1
    port=$(sed -n 's/.*listening on http:\/\/.*:\([0-9]*\)[^0-9]*$/\1/p' "$T/$name.out" | head -1)
}
status() { "$R" ctl status | tr -d ' \t\n'; }
of_status() { # KEY: the run's own number
    status | sed -n "s/\"engines\":.*//; s/.*\"$1\":\(-\{0,1\}[0-9]*\).*/\1/p"
}
committed() { of_status policy_version; }
beyond() { [ "$(committed)" -gt "$1" ]; }
phase_is() { status | grep -q "\"phase\":\"\($1\)\""; } # A PATTERN, as a\|b
# Of an engine, by its address or its name.
state() { status | grep -q "\"$1\",[^}]*\"state\":\"$2\""; }
serves() { status | grep -q "\"$1\",[^}]*\"serves\":true"; }
serve() { [ "$(status | grep -o '"serves":true' | wc -l)" -eq "$1" ]; } # COUNT
engine_pid() { status | sed -n "s/.*\"engine\":\"$1\",[^}]*\"pid\":\([0-9]*\).*/\1/p"; } # NAME
sql() { "$R" query "$T/$log" --json --sql "$1"; }
number() { sql "$1" | sed -n 's/.*"n":\(-\{0,1\}[0-9]*\).*/\1/p'; }
txn_phase() { echo "(select code from enumeration where kind='txn_phase' and word='$1')"; }
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
