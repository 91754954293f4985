# The policy transaction with real processes: roll-back by the operator, engines that hang or are
# killed while a policy goes out, the core killed in a transaction and resumed. The log is judged.
# ROLLTOP_ROUNDS=N: kills of each kind (2).
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/fleet.sh"
rounds=${ROLLTOP_ROUNDS:-2}

run fleet.db --rollout-batch-size 8 --n-samples-per-prompt 4 --rollout-max-response-len 16 \
    --local-engines 3 --keep-policies 6
wait_for 90 beyond 4 || { fail "the run commits policies"; exit 1; }

# The operator goes back to an older policy.
"$R" ctl update --to 99999 >"$T/no" 2>&1 && fail "a version that is not kept is refused"
grep -q "v99999 is not kept; there are v" "$T/no" || { fail "it says which are kept"; cat "$T/no"; }
"$R" ctl update eng-00 --to 3 >"$T/no" 2>&1 && fail "--to is for all engines"
worse() { "$R" ctl update --to v$(($(committed) - 1)) --reason "worse"; }
wait_for 60 worse || fail "a kept version is accepted" # refused while an update is under way
back() { [ "$(number "select count(*) n from txn where to_version<from_version and outcome='committed' and command_id>0")" -ge 1 ]; }
wait_for 60 back || { fail "every engine goes back"; sql "select * from txn order by txn_id desc limit 3"; }
newest=$(number "select max(to_version) n from txn")
wait_for 60 beyond "$newest" || fail "the run goes on upwards after it"

# Engines are killed while a policy goes out.
i=0
while [ "$i" -lt "$rounds" ]; do
    i=$((i + 1))
    name=eng-0$((i % 3))
    wait_for 60 serve 3 || fail "three engines serve before round $i"
    victim=$(engine_pid "$name")
    wait_for 60 phase_is sync || fail "a policy goes out in round $i"
    kill -9 "$victim" || fail "$name is there"
    another() { [ "$(engine_pid "$name")" -ne "$victim" ] && serves "$name"; }
    wait_for 60 another || fail "it serves again in round $i"
    wait_for 60 beyond "$(committed)" || fail "policies go on after round $i"
done

# The core is killed with a transaction open, and resumed.
i=0
while [ "$i" -lt "$rounds" ]; do
    i=$((i + 1))
    wait_for 60 serve 3 || fail "three engines serve before the core is killed"
    wait_for 60 phase_is sync || fail "a policy goes out before the core is killed"
    lose_core
    stands=$(number "select coalesce(max(to_version),-1) n from txn where decided=1 and to_version<>from_version and txn_id=(select max(txn_id) from txn where decided=1 and to_version<>from_version)")
    begin "$log" --resume --num-rollout 100000
    wait_for 90 beyond "$stands" || fail "the resumed core goes on beyond v$stands"
done
wait_for 60 serve 3 || fail "three engines serve in the end"
end_run 32

# The ledger.
[ "$(number "select count(*) n from txn where ended_us is null")" -eq 0 ] || fail "a transaction is open"
[ "$(number "select count(*) n from txn where outcome='committed' and coalesce(decided,0)<>1")" -eq 0 ] ||
    fail "committed without a decision"
[ "$(number "select count(*) n from txn where outcome='rolled_back' and coalesce(decided,1)<>0")" -eq 0 ] ||
    fail "rolled back without a decision"
[ "$(number "select count(*) n from txn t join txn_answer a on a.txn_id=t.txn_id join enumeration e on e.kind='txn_phase' and e.code=a.phase where e.word='continue' and a.t_us-a.took_us<t.decided_us")" -eq 0 ] ||
    fail "an engine was let go on before the decision"
[ "$(number "select count(*) n from attempt a where a.fate=(select code from enumeration where kind='sample_fate' and word='accepted') and a.versions like '%,%'")" -eq 0 ] ||
    fail "a sample of two policies was accepted"
[ "$(number "select count(*) n from attempt where fate=(select code from enumeration where kind='sample_fate' and word='accepted')")" -gt 0 ] ||
    fail "samples were accepted"
"$R" policies "$T/$log" | grep -q committed || fail "rolltop policies shows them"
"$R" policy show "$newest" --log "$T/$log" >"$T/show" || fail "rolltop policy show"
grep -q verify "$T/show" || { fail "it shows the answers of each phase"; cat "$T/show"; }
last=$(number "select max(version) n from policy")
"$R" policy diff $((last - 1)) "$last" --log "$T/$log" >"$T/diff" || fail "rolltop policy diff"
grep -q "^all tensors" "$T/diff" || { fail "it sums up"; cat "$T/diff"; }
# One that is retired is told by its name, and without a table's head above.
"$R" policy diff 1 "$last" --log "$T/$log" >"$T/diff" 2>"$T/err" && fail "policy 1 is retired"
[ ! -s "$T/diff" ] || { fail "a head without rows"; cat "$T/diff"; }
grep -q "the weights of policy v1 are no longer at" "$T/err" || { fail "v1 by name"; cat "$T/err"; }
[ $failed -eq 0 ] && echo "policy fleet: ok"
exit $failed
