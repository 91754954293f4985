# A run over engines of others that are killed, frozen, replaced, added and removed under it: no
# step fails, no sample is lost or counted twice, and each change is an event with its reason.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/fleet.sh"
start() { # NAME PORT [HOST]: an engine; its pid in $pid, its address in $where
    engine "$1" "${3:-127.0.0.1}" "$2" || { fail "engine $1 starts"; cat "$T/$1.out"; exit 1; }
    where=${3:-127.0.0.1}:$port
}
start a 0 127.1.$own; A=$where a=$pid
start b 0; B=$where b=$pid
start c 0; C=$where
start d 0; D=$where
printf '# engines of the run\n%s\n%s\n' "$A" "$B" >"$T/engines"

# Mistakes are one sentence, before anything starts.
large="--rollout-batch-size 16 --n-samples-per-prompt 8 --rollout-max-response-len 16"
refused() { # WORDS FLAGS…
    words=$1
    shift
    timeout 60 "$R" run --headless --log "$T/changes.db" --hf-checkpoint "$T/task/base" \
        --prompt-data "$T/task/train.jsonl" --label-key label --rm-type digits $large \
        --num-rollout 100000 "$@" >"$T/out" 2>&1 </dev/null
    [ $? -eq 2 ] && grep -q -- "$words" "$T/out" || fail "$*: refused with \"$words\""
}
printf '%s\nnot-an-engine\n' "$A" >"$T/bad"
refused 'bad:2: "not-an-engine" is not the address' --engines-file "$T/bad"
refused 'engines-dns "x" is neither' --engines-dns x
refused 'is not below --probe-dead-ms' --engines-file "$T/engines" --probe-stale-ms 5000
refused 'needs a frontend of others' --engines-from-frontend 30000

run changes.db $large --engines-file "$T/engines"

# Added by the operator, and by the file.
"$R" ctl engine add "$C" --reason more >/dev/null || fail "engine add"
wait_for 60 serves eng-02 || fail "eng-02 serves"
"$R" ctl engine add "$C" >"$T/said" 2>&1 && fail "an engine is added once"
grep -q 'in the fleet already, as eng-02' "$T/said" || { fail "words"; cat "$T/said"; }
"$R" ctl engine add nonsense >"$T/said" 2>&1 && fail "nonsense is no engine"
"$R" ctl engine remove eng-77 >"$T/said" 2>&1 && fail "eng-77 is no engine"
printf '%s\n%s\n%s\n' "$A" "$B" "$D" >"$T/engines"
wait_for 60 serves eng-03 || fail "eng-03 serves"
wait_for 60 event 'joins the fleet at % more' || fail "eng-02: event with its reason"
wait_for 60 event 'listed by the engines file' || fail "eng-03: event with its reason"
goes_on "adding"

# Frozen in mid-rollout, then thawed: the same process, fenced until it holds the policy.
kill -STOP "$b"
from=$(date +%s%N)
wait_for 60 state eng-01 dead || fail "the frozen engine is seen"
took=$((($(date +%s%N) - from) / 1000000))
echo "frozen engine seen after $took ms"
goes_on "freezing"
kill -CONT "$b"
wait_for 60 serves eng-01 || fail "the thawed engine serves again"
[ "$(number "select max(incarnation) n from incarnation where engine=2")" -eq 1 ] ||
    fail "a thawed engine is the same process"

# Killed, and back under its address as another process.
end_part "$a" || fail "engine a is there"
wait_for 60 state eng-00 dead || fail "the killed engine is seen"
serves eng-00 && fail "a dead engine serves nothing"
goes_on "killing"
start a2 "${A##*:}" 127.1.$own; a=$pid
wait_for 60 serves eng-00 || fail "the new process serves under the old address"

# Replaced between two probes.
end_part "$a" || fail "engine a2 is there"
start a3 "${A##*:}" 127.1.$own
wait_for 60 event 'another process answers now (incarnation 3)' || fail "the replacement is seen"
wait_for 60 serves eng-00 || fail "the replacement serves"
goes_on "replacing"

# Drained and removed, by the operator and by the file.
"$R" ctl engine drain eng-02 >/dev/null || fail "engine drain"
wait_for 60 state eng-02 gone || fail "the drained engine leaves"
"$R" ctl engine remove eng-01 >/dev/null || fail "engine remove"
wait_for 60 state eng-01 gone || fail "the removed engine leaves"
printf '%s\n' "$A" >"$T/engines"
wait_for 60 state eng-03 gone || fail "an engine leaves with its line in the file"
wait_for 60 event 'no longer listed by the engines file' || fail "eng-03 leaves: event with its reason"
"$R" ctl engine remove eng-00 >"$T/said" 2>&1 && fail "the last engine stays"
goes_on "removing"
"$R" ctl engine add "$C" >/dev/null || fail "engine add again"
wait_for 60 serves eng-02 || fail "it is eng-02 again"

# Two names for one process.
"$R" ctl engine add "localhost:${C##*:}" >/dev/null || fail "another name is taken at first"
wait_for 60 state eng-04 gone || fail "and found out"
wait_for 60 event 'one of the two names is enough' || fail "event about the two names"
goes_on "two names"

# A file that cannot be read leaves the fleet as it is.
printf 'what is this\n' >"$T/engines"
wait_for 60 event 'engines known so far stay' || fail "event about the bad file"
goes_on "a bad file"

end_run 128
echo "steps: $(steps)"
exit $failed
