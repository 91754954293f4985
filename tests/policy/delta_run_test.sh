# Deltas with real processes: a run publishes them, engines follow with copies of their own; one
# engine is killed and comes back, one copy is damaged, the operator goes back to a version that is
# kept as a delta alone, the core is killed in a publication and resumed. At every commit each
# engine's checksum is the digest that the trainer published.
set -u
R=${ROLLTOP:?}
T=$(mktemp -d)
XDG_STATE_HOME=$T XDG_RUNTIME_DIR=$T
export XDG_STATE_HOME XDG_RUNTIME_DIR
failed=0
core=
trap '[ -n "$core" ] && kill -9 $core 2>/dev/null; rm -rf "$T"' EXIT
fail() { echo "FAILED: $*"; failed=1; }
sql() { "$R" query "$T/a.db" --json --sql "$1"; }
number() { sed -n "s/.*\"$1\":[ \t]*\(-\{0,1\}[0-9][0-9]*\).*/\1/p"; }
one() { sql "$1" | number n; }
status() { "$R" ctl status --run delta; }
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
up() { [ "$(status | grep -c '"serves":.*true')" -eq 3 ]; }
syncing() { status | grep -q '"phase":.*\(sync\|publish\)'; }
engine_pid() { status | sed -n '/"engines"/,$p' | grep '"pid"' | number pid | sed -n "${1}p"; }
phase() { echo "(select code from enumeration where kind='txn_phase' and word='$1')"; }
deltas() { one "select count(*) n from policy p join txn t on t.to_version=p.version where p.kind='delta' and t.outcome='committed'"; }
# Pulls of deltas that went well, of one engine, after a transaction.
pulls() { one "select count(*) n from txn_answer a join txn t on t.txn_id=a.txn_id join policy p on p.version=t.to_version where p.kind='delta' and t.outcome='committed' and a.phase=$(phase prepare) and a.ok=1 and a.engine=$1 and a.txn_id>$2"; }
more_deltas() { [ "$(deltas)" -ge "$1" ]; }
follows() { [ "$(pulls "$1" "$2")" -ge 2 ]; }
newest_txn() { one "select max(txn_id) n from txn"; }

"$R" demo --headless --steps 1 --engines 1 --keep --log "$T/task.db" >"$T/out0" 2>&1 </dev/null
B=$T/task.db.d/task
[ -d "$B/base" ] || { fail "the demo's task is there"; cat "$T/out0"; exit 1; }
"$R" run --headless --log "$T/a.db" --run-id delta --hf-checkpoint "$B/base" \
    --prompt-data "$B/train.jsonl" --label-key label --rm-type digits --rollout-batch-size 8 \
    --n-samples-per-prompt 4 --rollout-max-response-len 16 --num-rollout 100000 --lr 1e-4 \
    --local-engines 3 --publish-dtype f32 --rollout-skip-special-tokens --keep-policies 4 \
    --update-weight-mode delta --update-weight-delta-full-every 6 >"$T/out" 2>&1 </dev/null &
core=$!
wait_for 120 more_deltas 4 || { fail "the run commits deltas"; cat "$T/out"; exit 1; }

# An engine is killed: it comes back, and follows again.
before=$(newest_txn)
kill -9 "$(engine_pid 2)" || fail "the second engine is there"
wait_for 90 follows 2 "$before" || fail "a killed engine follows again"
wait_for 90 up || fail "three engines serve after that"

# A copy that is not the base any more is left alone, and its engine gets the complete version.
before=$(newest_txn)
refused() { [ "$(one "select count(*) n from txn_answer where phase=$(phase prepare) and ok=0 and engine=3 and txn_id>$before and detail like '%is not the base of delta%'")" -ge 1 ]; }
still() { status | grep -q "\"phase\":.*\"pause\""; }
damage() { # between two pulls; the next one may be a complete one, so it is done again
    "$R" ctl pause --run delta && wait_for 60 still || return 1
    printf 'rolltop' | dd of="$T/a.db.d/copies/eng-02/model.safetensors" bs=1 seek=40000 \
        conv=notrunc 2>/dev/null
    policy=$(committed)
    "$R" ctl resume --run delta && wait_for 60 beyond "$policy"
    refused
}
wait_for 20 damage || fail "a damaged copy is refused as the base"
after=$(newest_txn)
wait_for 90 follows 3 "$after" || fail "its engine follows again from a complete version"

# The operator goes back to a version of which only the delta is left.
alone() {
    target=$(one "select max(p.version) n from policy p where p.kind='delta' and p.version<$(committed) and p.version>$(committed)-4")
    [ -n "$target" ] && [ ! -d "$T/a.db.d/policies/v$(printf %06d "$target")" ] &&
        "$R" ctl update --to "$target" --run delta --reason "worse"
}
wait_for 90 alone || fail "a version that is kept as a delta is accepted"
back() { [ "$(one "select count(*) n from txn where to_version<from_version and outcome='committed'")" -ge 1 ]; }
wait_for 60 back || { fail "every engine goes back to it"; sql "select * from txn order by txn_id desc limit 3"; }
count=$(deltas)
wait_for 90 more_deltas $((count + 2)) || fail "deltas go on after it"

# The core is killed with a publication or a transaction under way.
wait_for 60 syncing || fail "a policy goes out before the core is killed"
kill -9 $core
wait $core 2>/dev/null
stands=$(one "select max(version) n from policy")
"$R" run --resume --log "$T/a.db" --headless --num-rollout 100000 >"$T/out2" 2>&1 </dev/null &
core=$!
wait_for 120 beyond "$stands" || { fail "the resumed core goes on beyond v$stands"; cat "$T/out2"; }
count=$(deltas)
wait_for 90 more_deltas $((count + 3)) || fail "deltas go on after a resume"
wait_for 60 up || fail "three engines serve in the end"
"$R" ctl stop --run delta >/dev/null
wait $core
core=

# The ledger.
[ "$(one "select count(*) n from txn where ended_us is null")" -eq 0 ] || fail "a transaction is open"
[ "$(one "select count(*) n from txn_answer a join txn t on t.txn_id=a.txn_id where t.outcome='committed' and a.phase=$(phase verify) and a.ok=1 and a.detail like 'checksum %'")" -gt 30 ] ||
    fail "engines gave checksums"
wrong="select a.txn_id, a.engine, a.detail, p.digest from txn_answer a join txn t on t.txn_id=a.txn_id join policy p on p.version=t.to_version where t.outcome='committed' and a.phase=$(phase verify) and a.ok=1 and a.detail like 'checksum %' and a.detail<>'checksum '||p.digest and not exists (select 1 from txn_answer b where b.txn_id=a.txn_id and b.engine=a.engine and b.phase=a.phase and b.detail='checksum '||p.digest and b.answer_id>a.answer_id)"
[ -z "$(sql "$wrong" | grep digest)" ] || { fail "a checksum is not the published digest"; sql "$wrong"; }
[ "$(one "select count(*) n from (select version from policy group by version having count(*)>1)")" -eq 0 ] ||
    fail "a number was used twice"
kept=$(ls -d "$T/a.db.d/policies/chain"/weight_v* | wc -l)
[ "$kept" -le 12 ] || fail "old versions are removed, $kept are there"
density=$("$R" query "$T/a.db" metrics --json | grep -c '"perf/update_weights_density","value":0\.[0-9]')
[ "$density" -gt 3 ] || fail "the share of changed bytes is logged"
last=$(one "select max(version) n from policy where kind='delta'")
"$R" policy diff $((last - 1)) "$last" --log "$T/a.db" >"$T/diff" 2>&1 || fail "rolltop policy diff"
grep -q "^all tensors" "$T/diff" || { fail "policies that are kept as deltas are compared"; cat "$T/diff"; }
[ $failed -eq 0 ] && echo "policy delta run: ok"
exit $failed
