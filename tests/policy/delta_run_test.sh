# Deltas with real processes: a run publishes them, engines follow with copies of their own; one
# engine is killed and comes back, one copy is damaged, the operator goes back to a version that is
# kept as a delta alone, the core is killed in a publication and resumed. At every commit each
# engine's checksum is the digest that the trainer published.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/fleet.sh"
deltas() { number "select count(*) n from policy p join txn t on t.to_version=p.version where p.kind='delta' and t.outcome='committed'"; }
# Pulls of deltas that went well, of one engine, after a transaction.
pulls() { number "select count(*) n from txn_answer a join txn t on t.txn_id=a.txn_id join policy p on p.version=t.to_version where p.kind='delta' and t.outcome='committed' and a.phase=$(txn_phase prepare) and a.ok=1 and a.engine=$1 and a.txn_id>$2"; }
more_deltas() { [ "$(deltas)" -ge "$1" ]; }
follows() { [ "$(pulls "$1" "$2")" -ge 2 ]; }
newest_txn() { number "select max(txn_id) n from txn"; }

run delta.db --rollout-batch-size 8 --n-samples-per-prompt 4 --rollout-max-response-len 16 \
    --local-engines 3 --keep-policies 4 --update-weight-mode delta --update-weight-delta-full-every 6
wait_for 120 more_deltas 4 || { fail "the run commits deltas"; exit 1; }

# An engine is killed: it comes back, and follows again.
before=$(newest_txn)
kill -9 "$(engine_pid eng-01)" || fail "the second engine is there"
wait_for 90 follows 2 "$before" || fail "a killed engine follows again"
wait_for 90 serve 3 || fail "three engines serve after that"

# A copy that is not the base any more is left alone, and its engine gets the complete version.
before=$(newest_txn)
refused() { [ "$(number "select count(*) n from txn_answer where phase=$(txn_phase prepare) and ok=0 and engine=3 and txn_id>$before and detail like '%is not the base of delta%'")" -ge 1 ]; }
damage() { # between two pulls; the next one may be a complete one, so it is done again
    "$R" ctl pause && wait_for 60 phase_is pause || return 1
    printf 'rolltop' | dd of="$T/delta.db.d/copies/eng-02/model.safetensors" bs=1 seek=40000 \
        conv=notrunc 2>/dev/null
    policy=$(committed)
    "$R" ctl resume && wait_for 60 beyond "$policy"
    refused
}
wait_for 20 damage || fail "a damaged copy is refused as the base"
after=$(newest_txn)
wait_for 90 follows 3 "$after" || fail "its engine follows again from a complete version"

# The operator goes back to a version of which only the delta is left.
alone() {
    target=$(number "select max(p.version) n from policy p where p.kind='delta' and p.version<$(committed) and p.version>$(committed)-4")
    [ -n "$target" ] && [ ! -d "$T/delta.db.d/policies/v$(printf %06d "$target")" ] &&
        "$R" ctl update --to "$target" --reason "worse"
}
wait_for 90 alone || fail "a version that is kept as a delta is accepted"
back() { [ "$(number "select count(*) n from txn where to_version<from_version and outcome='committed'")" -ge 1 ]; }
wait_for 60 back || { fail "every engine goes back to it"; sql "select * from txn order by txn_id desc limit 3"; }
count=$(deltas)
wait_for 90 more_deltas $((count + 2)) || fail "deltas go on after it"

# The core is killed with a publication or a transaction under way.
wait_for 60 phase_is "sync\|publish" || fail "a policy goes out before the core is killed"
lose_core
stands=$(number "select max(version) n from policy")
begin "$log" --resume --num-rollout 100000
wait_for 120 beyond "$stands" || fail "the resumed core goes on beyond v$stands"
count=$(deltas)
wait_for 90 more_deltas $((count + 3)) || fail "deltas go on after a resume"
wait_for 60 serve 3 || fail "three engines serve in the end"
end_run 32

# The ledger.
[ "$(number "select count(*) n from txn where ended_us is null")" -eq 0 ] || fail "a transaction is open"
[ "$(number "select count(*) n from txn_answer a join txn t on t.txn_id=a.txn_id where t.outcome='committed' and a.phase=$(txn_phase verify) and a.ok=1 and a.detail like 'checksum %'")" -gt 30 ] ||
    fail "engines gave checksums"
wrong="select a.txn_id, a.engine, a.detail, p.digest from txn_answer a join txn t on t.txn_id=a.txn_id join policy p on p.version=t.to_version where t.outcome='committed' and a.phase=$(txn_phase verify) and a.ok=1 and a.detail like 'checksum %' and a.detail<>'checksum '||p.digest and not exists (select 1 from txn_answer b where b.txn_id=a.txn_id and b.engine=a.engine and b.phase=a.phase and b.detail='checksum '||p.digest and b.answer_id>a.answer_id)"
[ -z "$(sql "$wrong" | grep digest)" ] || { fail "a checksum is not the published digest"; sql "$wrong"; }
[ "$(number "select count(*) n from (select version from policy group by version having count(*)>1)")" -eq 0 ] ||
    fail "a number was used twice"
kept=$(ls -d "$T/delta.db.d/policies/chain"/weight_v* | wc -l)
[ "$kept" -le 12 ] || fail "old versions are removed, $kept are there"
density=$("$R" query "$T/$log" metrics --json | grep -c '"perf/update_weights_density","value":0\.[0-9]')
[ "$density" -gt 3 ] || fail "the share of changed bytes is logged"
last=$(number "select max(version) n from policy where kind='delta'")
"$R" policy diff $((last - 1)) "$last" --log "$T/$log" >"$T/diff" 2>&1 || fail "rolltop policy diff"
grep -q "^all tensors" "$T/diff" || { fail "policies that are kept as deltas are compared"; cat "$T/diff"; }
[ $failed -eq 0 ] && echo "policy delta run: ok"
exit $failed
