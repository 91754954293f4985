# The policy transaction with real processes: roll-back by the operator, engines that hang or are
# killed while a policy goes out, the core killed in a transaction and resumed. The log is judged.
# ROLLTOP_ROUNDS=N: kills of each kind (2).
set -u
R=${ROLLTOP:?}
T=$(mktemp -d)
XDG_STATE_HOME=$T XDG_RUNTIME_DIR=$T
export XDG_STATE_HOME XDG_RUNTIME_DIR
rounds=${ROLLTOP_ROUNDS:-2}
failed=0
core=
trap '[ -n "$core" ] && kill -9 $core 2>/dev/null; rm -rf "$T"' EXIT
fail() { echo "FAILED: $*"; failed=1; }
sql() { "$R" query "$T/a.db" --json --sql "$1"; }
number() { sed -n "s/.*\"$1\":[ \t]*\(-\{0,1\}[0-9][0-9]*\).*/\1/p"; }
one() { sql "$1" | number n; }
status() { "$R" ctl status --run pol; }
wait_for() { # SECONDS COMMAND…
    left=$(($1 * 10))
    shift
    while ! "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ $left -le 0 ] && return 1
        sleep 0.1
    done
}
committed() { status | number policy_version | head -1; }
beyond() { [ "$(committed)" -gt "$1" ]; }
goes_on() { wait_for 60 beyond "$(committed)"; }
up() { [ "$(status | grep -c '"serves":.*true')" -eq 3 ]; }
syncing() { status | grep -q '"phase":.*sync'; }
engine_pid() { status | sed -n '/"engines"/,$p' | grep '"pid"' | number pid | sed -n "${1}p"; }

"$R" demo --headless --steps 1 --engines 1 --keep --log "$T/task.db" >"$T/out0" 2>&1 </dev/null
B=$T/task.db.d/task
[ -d "$B/base" ] || { fail "the demo's task is there"; cat "$T/out0"; exit 1; }
"$R" run --headless --log "$T/a.db" --run-id pol --hf-checkpoint "$B/base" \
    --prompt-data "$B/train.jsonl" --label-key label --rm-type digits --rollout-batch-size 8 \
    --n-samples-per-prompt 4 --rollout-max-response-len 16 --num-rollout 100000 --lr 1e-4 \
    --local-engines 3 --publish-dtype f32 --rollout-skip-special-tokens --keep-policies 6 \
    >"$T/out" 2>&1 </dev/null &
core=$!
wait_for 90 beyond 4 || { fail "the run commits policies"; cat "$T/out"; exit 1; }

# The operator goes back to an older policy.
"$R" ctl update --to 99999 --run pol >"$T/no" 2>&1 && fail "a version that is not kept is refused"
grep -q "v99999 is not kept; there are v" "$T/no" || { fail "it says which are kept"; cat "$T/no"; }
"$R" ctl update eng-00 --to 3 --run pol >"$T/no" 2>&1 && fail "--to is for all engines"
newest=
tries=0
until "$R" ctl update --to v$(($(committed) - 1)) --run pol --reason "worse" >"$T/yes" 2>&1; do
    tries=$((tries + 1)) # refused while an update is under way
    [ $tries -gt 100 ] && { fail "a kept version is accepted"; cat "$T/yes"; break; }
    sleep 0.1
done
back() { [ "$(one "select count(*) n from txn where to_version<from_version and outcome='committed' and command_id>0")" -ge 1 ]; }
wait_for 30 back || { fail "every engine goes back"; sql "select * from txn order by txn_id desc limit 3"; }
newest=$(one "select max(to_version) n from txn")
wait_for 60 beyond "$newest" || fail "the run goes on upwards after it"

# Engines are killed, or stop, while a policy goes out.
i=0
while [ $i -lt "$rounds" ]; do
    i=$((i + 1))
    wait_for 60 up || fail "three engines serve before round $i"
    victim=$(engine_pid $((i % 3 + 1)))
    wait_for 30 syncing || fail "a policy goes out in round $i"
    kill -9 "$victim" || fail "engine $victim is there"
    wait_for 60 up || fail "it serves again in round $i"
    goes_on || fail "policies go on after round $i"
done

# The core is killed with a transaction open, and resumed.
i=0
while [ $i -lt "$rounds" ]; do
    i=$((i + 1))
    wait_for 60 up || fail "three engines serve before the core is killed"
    wait_for 30 syncing || fail "a policy goes out before the core is killed"
    kill -9 $core
    wait $core 2>/dev/null
    stands=$(one "select coalesce(max(to_version),-1) n from txn where decided=1 and to_version<>from_version and txn_id=(select max(txn_id) from txn where decided=1 and to_version<>from_version)")
    "$R" run --resume --log "$T/a.db" --headless --num-rollout 100000 >"$T/out2" 2>&1 </dev/null &
    core=$!
    wait_for 90 beyond "$stands" || { fail "the resumed core goes on beyond v$stands"; cat "$T/out2"; }
done
wait_for 60 up || fail "three engines serve in the end"
"$R" ctl stop --run pol >/dev/null
wait $core
core=

# The ledger.
[ "$(one "select count(*) n from txn where ended_us is null")" -eq 0 ] || fail "a transaction is open"
[ "$(one "select count(*) n from txn where outcome='committed' and coalesce(decided,0)<>1")" -eq 0 ] ||
    fail "committed without a decision"
[ "$(one "select count(*) n from txn where outcome='rolled_back' and coalesce(decided,1)<>0")" -eq 0 ] ||
    fail "rolled back without a decision"
[ "$(one "select count(*) n from txn t join txn_answer a on a.txn_id=t.txn_id join enumeration e on e.kind='txn_phase' and e.code=a.phase where e.word='continue' and a.t_us-a.took_us<t.decided_us")" -eq 0 ] ||
    fail "an engine was let go on before the decision"
[ "$(one "select count(*) n from attempt a where a.fate=(select code from enumeration where kind='sample_fate' and word='accepted') and a.versions like '%,%'")" -eq 0 ] ||
    fail "a sample of two policies was accepted"
[ "$(one "select count(*) n from attempt where fate=(select code from enumeration where kind='sample_fate' and word='accepted')")" -gt 0 ] ||
    fail "samples were accepted"
"$R" policies "$T/a.db" | grep -q committed || fail "rolltop policies shows them"
"$R" policy show "$newest" --log "$T/a.db" >"$T/show" || fail "rolltop policy show"
grep -q verify "$T/show" || { fail "it shows the answers of each phase"; cat "$T/show"; }
last=$(one "select max(version) n from policy")
"$R" policy diff $((last - 1)) "$last" --log "$T/a.db" >"$T/diff" || fail "rolltop policy diff"
grep -q "^all tensors" "$T/diff" || { fail "it sums up"; cat "$T/diff"; }
# One that is retired is told by its name, and without a table's head above.
"$R" policy diff 1 "$last" --log "$T/a.db" >"$T/diff" 2>"$T/err" && fail "policy 1 is retired"
[ ! -s "$T/diff" ] || { fail "a head without rows"; cat "$T/diff"; }
grep -q "the weights of policy v1 are no longer at" "$T/err" || { fail "v1 by name"; cat "$T/err"; }
[ $failed -eq 0 ] && echo "policy fleet: ok"
exit $failed
