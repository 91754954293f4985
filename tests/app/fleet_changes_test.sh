# A run over engines of others that are killed, frozen, replaced, added and removed under it: no
# step fails, no sample is lost or counted twice, and each change is an event with its reason.
set -u
R=${ROLLTOP:?}
T=$(mktemp -d)
XDG_STATE_HOME=$T XDG_RUNTIME_DIR=$T
export XDG_STATE_HOME XDG_RUNTIME_DIR
unset DYNAMO_ENGINE_ADDRS DYNAMO_ROLLOUT_URL
failed=0
core=
engines=
trap 'for p in $core $engines; do kill -CONT $p; kill -9 $p; done 2>/dev/null; rm -rf "$T"' EXIT
fail() { # …WORDS: the reason, and what the log knows of the engines at that moment
    echo "FAILED: $*"
    failed=1
    [ -f "$T/run.db" ] && sql "select * from incarnation" && sql "select * from (select t_us, source, text from event order by t_us desc limit 15) order by t_us"
}
sql() { "$R" query "$T/run.db" --json --sql "$1"; }
wait_for() { # SECONDS COMMAND…
    left=$(($1 * 15)) # three times: other tests run beside this one
    shift
    while ! "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ $left -le 0 ] && return 1
        sleep 0.2
    done
}
listens() { grep -q 'listening on http://' "$1"; }
address() { sed -n 's/.*listening on http:\/\/\([0-9.:]*\).*/\1/p' "$1" | head -1; }
engine() { # NAME PORT: starts one; its pid in $pid, its address in $where
    "$R" engine --model-path "$T/a.db.d/task/base" --incremental-streaming-output --port "$2" \
        >"$T/$1.out" 2>&1 &
    pid=$!
    engines="$engines $pid"
    wait_for 20 listens "$T/$1.out" || { fail "engine $1 starts"; cat "$T/$1.out"; exit 1; }
    where=$(address "$T/$1.out")
}
state() { # ENGINE STATE: the newest state of it in `ctl status`
    "$R" ctl status | tr -d ' \t\n' | grep -q "\"engine\":\"$1\",[^}]*\"state\":\"$2\""
}
serves() { "$R" ctl status | tr -d ' \t\n' | grep -q "\"engine\":\"$1\",[^}]*\"serves\":true"; }
event() { sql "select count(*) n from event where text like '%$1%'" | grep -q '"n":[1-9]'; }
step() { "$R" ctl status | sed -n 's/.*"step":[^0-9]*\([0-9]*\).*/\1/p' | head -1; }
goes_on() {
    from=$(step)
    wait_for 40 sh -c "[ \$('$R' ctl status | sed -n 's/.*\"step\":[^0-9]*\([0-9]*\).*/\1/p' | head -1) -gt $((from + 1)) ]" || fail "steps go on after $1"
}

"$R" demo --headless --steps 1 --engines 1 --keep --log "$T/a.db" >"$T/out" 2>&1 </dev/null
[ -d "$T/a.db.d/task/base" ] || { fail "the demo makes a base model"; cat "$T/out"; exit 1; }
engine a 0; A=$where a=$pid
engine b 0; B=$where b=$pid
engine c 0; C=$where
engine d 0; D=$where
printf '# engines of the run\n%s\n%s\n' "$A" "$B" >"$T/engines"

# Mistakes are one sentence, before anything starts.
run() { # FLAGS…
    exec "$R" run --headless --log "$T/run.db" --run-id changes \
        --hf-checkpoint "$T/a.db.d/task/base" --prompt-data "$T/a.db.d/task/train.jsonl" \
        --label-key label --rm-type digits --rollout-batch-size 16 --n-samples-per-prompt 8 \
        --rollout-max-response-len 16 --num-rollout 100000 --lr 1e-4 --publish-dtype f32 \
        --rollout-skip-special-tokens "$@"
}
refused() { # WORDS FLAGS…
    words=$1
    shift
    (run "$@") >"$T/out" 2>&1 </dev/null
    [ $? -eq 2 ] && grep -q -- "$words" "$T/out" || { fail "$*: refused with \"$words\""; cat "$T/out"; }
}
printf '%s\nnot-an-engine\n' "$A" >"$T/bad"
refused 'bad:2: "not-an-engine" is not the address' --engines-file "$T/bad"
refused 'engines-dns "x" is neither' --engines-dns x
refused 'is not below --probe-dead-ms' --engines-file "$T/engines" --probe-stale-ms 5000
refused 'needs a frontend of others' --engines-from-frontend 30000

(run --engines-file "$T/engines") >"$T/out2" 2>&1 </dev/null &
core=$!
wait_for 60 grep -q '^step 1 ' "$T/out2" || { fail "the run starts"; cat "$T/out2"; exit 1; }

# Added by the operator, and by the file.
"$R" ctl engine add "$C" --reason more >"$T/out" || { fail "engine add"; cat "$T/out"; }
wait_for 30 serves eng-02 || fail "eng-02 serves"
"$R" ctl engine add "$C" >"$T/out" 2>&1 && fail "an engine is added once"
grep -q 'in the fleet already, as eng-02' "$T/out" || { fail "words"; cat "$T/out"; }
"$R" ctl engine add nonsense >"$T/out" 2>&1 && fail "nonsense is no engine"
"$R" ctl engine remove eng-77 >"$T/out" 2>&1 && fail "eng-77 is no engine"
printf '%s\n%s\n%s\n' "$A" "$B" "$D" >"$T/engines"
wait_for 30 serves eng-03 || fail "eng-03 serves"
wait_for 30 event 'joins the fleet at % more' || fail "eng-02: event with its reason"
wait_for 30 event 'listed by the engines file' || fail "eng-03: event with its reason"
goes_on "adding"

# Frozen in mid-rollout, then thawed: the same process, fenced until it holds the policy.
kill -STOP "$b"
from=$(date +%s%N)
wait_for 10 state eng-01 dead || fail "the frozen engine is seen"
took=$((($(date +%s%N) - from) / 1000000))
echo "frozen engine seen after $took ms"
goes_on "freezing"
kill -CONT "$b"
wait_for 30 serves eng-01 || fail "the thawed engine serves again"
sql "select max(incarnation) n from incarnation where engine=2" |
    grep -q '"n":[2-9]' && fail "a thawed engine is the same process"

# Killed, and back under its address as another process.
kill -9 "$a"
wait_for 10 state eng-00 dead || fail "the killed engine is seen"
serves eng-00 && fail "a dead engine serves nothing"
goes_on "killing"
engine a2 "${A##*:}"; a=$pid
wait_for 30 serves eng-00 || fail "the new process serves under the old address"

# Replaced between two probes.
kill -9 "$a"
engine a3 "${A##*:}"
wait_for 30 event 'another process answers now (incarnation 3)' || fail "the replacement is seen"
wait_for 30 serves eng-00 || fail "the replacement serves"
goes_on "replacing"

# Drained and removed, by the operator and by the file.
"$R" ctl engine drain eng-02 >/dev/null || fail "engine drain"
wait_for 30 state eng-02 gone || fail "the drained engine leaves"
"$R" ctl engine remove eng-01 >/dev/null || fail "engine remove"
wait_for 30 state eng-01 gone || fail "the removed engine leaves"
printf '%s\n' "$A" >"$T/engines"
wait_for 30 state eng-03 gone || fail "an engine leaves with its line in the file"
wait_for 30 event 'no longer listed by the engines file' || fail "eng-03 leaves: event with its reason"
"$R" ctl engine remove eng-00 >"$T/out" 2>&1 && fail "the last engine stays"
goes_on "removing"
"$R" ctl engine add "$C" >/dev/null || fail "engine add again"
wait_for 30 serves eng-02 || fail "it is eng-02 again"

# Two names for one process.
"$R" ctl engine add "localhost:${A##*:}" >/dev/null || fail "another name is taken at first"
wait_for 30 state eng-04 gone || fail "and found out"
wait_for 30 event 'one of the two names is enough' || fail "event about the two names"
goes_on "two names"

# A file that cannot be read leaves the fleet as it is.
printf 'what is this\n' >"$T/engines"
wait_for 20 event 'engines known so far stay' || fail "event about the bad file"
goes_on "a bad file"

"$R" ctl stop >/dev/null || fail "stop"
wait "$core"
[ $? -le 1 ] || { fail "the run ends well"; cat "$T/out2"; }
core=
sql "select count(*) n from step where ended_us is not null and outcome not in ('ok','stopped')" |
    grep -q '"n":0' || { fail "no step failed"; sql "select step, outcome from step"; }
sql "select count(*) n from step where step >= 0 and outcome='ok' and samples <> 128" |
    grep -q '"n":0' || fail "each step has its 128 samples"
sql "select count(*) n from (select sample_id from attempt where fate=1 group by sample_id having count(*) > 1)" |
    grep -q '"n":0' || fail "no sample is counted twice"
echo "steps: $(sql "select count(*) n from step where outcome='ok'")"
exit $failed
