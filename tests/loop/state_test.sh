# The trainer's states: saved at an interval, what lies after them trained again from the log; a
# damaged one gives way to the one before. Weights are the same bits each time, which the gradient
# norms of the steps done again show.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/fleet.sh"
L=$T/states.db
S=$L.d/trainer
every=4 # a state after steps 3, 7, 11, …: counted as slime counts
count() { number "select count(*) n from $1"; }
said() { [ "$(count "event where text like '%$1%'")" -ge 1 ] || fail "it says: $1"; }
exact() { [ "$(count "event where text like '%has gradient norm%'")" = 0 ] || fail "the same bits: $*"; }
last() { number "select max(step) n from step where outcome = 'ok'"; }
again() { count "event where text like '%are trained again from the log'"; }
more_again() { [ "$(again)" -gt "$1" ]; }
behind() { # STEPS after the last state: so many the log has; the newest in $stood
    stood=$(last)
    [ $(((stood + 1) % every)) -eq "$1" ]
}

# Holds the trainer where the log has that many steps after its last state. At most one more is under
# way then, whose end it cannot wait for: the log cannot get to the next state any more.
held=
hold() { # STEPS after the last state, below $every - 1
    tries=0
    while [ $tries -lt 300 ]; do
        tries=$((tries + 1))
        wait_for 120 behind "$1" || return 1
        held=$(of_status trainer_pid)
        [ "${held:-0}" -gt 1 ] && kill -STOP "$held" || continue
        behind "$1" && return 0
        kill -CONT "$held"
    done
    return 1
}

# The trainer dies twice between two states, at another distance from the last one.
run states.db --rollout-batch-size 4 --n-samples-per-prompt 4 --rollout-max-response-len 16 \
    --local-engines 1 --state-interval $every
for distance in 1 2; do
    wait_for 120 more_steps $((distance * every)) || { fail "steps are done"; exit 1; }
    before=$(again)
    hold $distance || { fail "the trainer stands $distance steps after a state"; exit 1; }
    first=$((stood - distance + 1))
    kill -9 "$held"
    wait_for 120 more_again "$before" || fail "steps are trained again from the log"
    said "steps $first to %, after $S/$(printf 'step-%06d' $((first - 1))), are trained again from the log"
    goes_on "the trainer's death"
done
# The core dies as well, between two states.
hold 1 || { fail "the trainer stands once more"; exit 1; }
lose_core
exact "after the trainer's death"
[ "$(ls "$S" | grep -c '^step-[0-9]*$')" -eq 2 ] || fail "two states are kept: $(ls "$S")"
for dir in "$S"/step-*; do
    step=$(expr "${dir##*-}" + 1)
    [ $((step % every)) -eq 0 ] || fail "a state after step $((step - 1))"
done

# Its newest state lost a few bytes, the log had not even ended that step.
resume() { # WORDS: two more steps, and it says so
    before=$(steps)
    "$R" run --headless --log "$L" --num-rollout $(($(last) + 3)) --resume >"$T/out" 2>&1 </dev/null ||
        { fail "the run goes on ($1)"; exit 1; }
    [ "$(steps)" -eq $((before + 2)) ] || fail "two more steps ($1)"
    said "$1"
    exact "$1"
    [ "$(count "(select step from step where outcome = 'ok' group by step having count(*) > 1)")" = 0 ] ||
        fail "no step counts twice ($1)"
}
newest() { # the state that the log names last: the one before it has to be there as well
    sql "select trainer_state t from step where outcome = 'ok' and trainer_state is not null
        order by step desc limit 1" | sed -n 's/.*"t":"\([^"]*\)".*/\1/p'
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
resume ", after $T/task/base, are trained again from the log"

[ "$(count "event where text like '%done again%'")" = 0 ] || fail "nothing was generated anew"
exit $failed
