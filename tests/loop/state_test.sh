# The trainer's states: saved at an interval, what lies after them trained again from the log; a
# damaged one gives way to the one before. Weights are the same bits each time, which the gradient
# norms of the steps done again show.
set -u
R=${ROLLTOP:?}
T=$(mktemp -d)
XDG_STATE_HOME=$T XDG_RUNTIME_DIR=$T
export XDG_STATE_HOME XDG_RUNTIME_DIR
failed=0
core=
trap '[ -n "$core" ] && kill -9 $core 2>/dev/null; rm -rf "$T"' EXIT
fail() { echo "FAILED: $*"; failed=1; }
L=$T/a.db
S=$L.d/trainer
count() { "$R" query "$L" --json --sql "select count(*) n from $1" | sed -n 's/.*"n":\([0-9]*\).*/\1/p'; }
said() { [ "$(count "event where text like '%$1%'")" -ge "${2:-1}" ] || fail "it says: $1"; }
wait_for() { # SECONDS COMMAND…
    left=$(($1 * 15))
    shift
    while ! "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ $left -le 0 ] && return 1
        sleep 0.2
    done
}
steps() { count "step where outcome = 'ok'"; }
ended() { [ "$(steps)" -ge "$1" ]; }
exact() { [ "$(count "event where text like '%has gradient norm%'")" = 0 ] || fail "the same bits: $*"; }

"$R" demo --headless --steps 1 --engines 1 --keep --log "$T/base.db" >"$T/out" 2>&1 </dev/null
[ -f "$T/base.db.d/task/train.jsonl" ] || { fail "a base is made"; cat "$T/out"; exit 1; }
B=$T/base.db.d/task
run() { # LAST STEP, extra flags; in place of the shell that calls it
    last=$1
    shift
    exec "$R" run --headless --log "$L" --run-id states --num-rollout "$last" "$@" \
        >"$T/out" 2>&1 </dev/null
}

# The trainer dies twice between two states.
run 100000 --hf-checkpoint "$B/base" --prompt-data "$B/train.jsonl" --label-key label \
    --rm-type digits --rollout-batch-size 4 --n-samples-per-prompt 4 --rollout-max-response-len 16 \
    --lr 1e-4 --local-engines 1 --publish-dtype f32 --state-interval 3 &
core=$!
for n in 4 7; do
    wait_for 180 ended $n || { fail "step $n ends"; cat "$T/out"; exit 1; }
    victim=$("$R" ctl status --run states | sed -n 's/.*"trainer_pid":[^0-9]*\([0-9]*\).*/\1/p')
    [ "${victim:-0}" -gt 1 ] && kill -9 "$victim"
    wait_for 180 ended $((n + 2)) || { fail "it goes on after step $n"; cat "$T/out"; exit 1; }
done
said "are trained again from the log"
kill -9 $core
wait $core 2>/dev/null
core=
exact "after the trainer's death"
[ "$(ls "$S" | grep -c '^step-[0-9]*$')" -le 2 ] || fail "two states are kept: $(ls "$S")"
for dir in "$S"/step-*; do # counted as slime counts: after steps 2, 5, 8, …
    step=$(expr "${dir##*-}" + 1)
    [ $((step % 3)) -eq 0 ] || fail "a state after step $((step - 1))"
done

# The core died as well; its newest state lost a few bytes, the log had not even ended that step.
resume() { # WORDS: two more steps, and it says so
    before=$(steps)
    last=$("$R" query "$L" --json --sql "select max(step) n from step where outcome = 'ok'" | sed -n 's/.*"n":\([0-9]*\).*/\1/p')
    (run $((last + 3)) --resume) || { fail "the run goes on ($1)"; cat "$T/out"; exit 1; }
    ended $((before + 2)) || fail "two more steps ($1)"
    said "$1"
    exact "$1"
    [ "$(count "(select step from step where outcome = 'ok' group by step having count(*) > 1)")" = 0 ] ||
        fail "no step counts twice ($1)"
}
newest() { # the state that the log names last: the one before it has to be there as well
    "$R" query "$L" --json --sql "select trainer_state t from step where outcome = 'ok' and
        trainer_state is not null order by step desc limit 1" | sed -n 's/.*"t":"\([^"]*\)".*/\1/p'
}
newest=$(newest)
size=$(wc -c <"$newest/model.safetensors")
head -c $((size - 100)) "$newest/model.safetensors" >"$T/cut" && cp "$T/cut" "$newest/model.safetensors"
resume "$(basename "$newest") is damaged: model.safetensors has $((size - 100)) bytes, $size were saved"
newest=$(newest)
printf X | dd of="$newest/optimizer.safetensors" bs=1 seek=4000 conv=notrunc 2>/dev/null
resume "$(basename "$newest") is damaged: optimizer.safetensors has digest"
newest=$(newest)
rm -r "$newest"
resume "is not there; it goes on from"

# Without any state the run begins anew from its checkpoint and does every step again, from the log.
rm -r "$S"/step-*
resume ", after $B/base, are trained again from the log"

[ "$(count "event where text like '%done again%'")" = 0 ] || fail "nothing was generated anew"
exit $failed
