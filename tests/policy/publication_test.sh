# Bad input at publication, with real processes: artifacts that are not what was published, and an
# engine that does not see the shared directory. Each is refused by name before anybody is paused,
# and the last committed policy goes on serving.
set -u
R=${ROLLTOP:?}
T=$(mktemp -d)
XDG_STATE_HOME=$T XDG_RUNTIME_DIR=$T
export XDG_STATE_HOME XDG_RUNTIME_DIR
failed=0
core=
parts=
trap '[ -n "$core$parts" ] && kill -9 $core $parts 2>/dev/null; rm -rf "$T"' EXIT
fail() { echo "FAILED: $*"; failed=1; }
sql() { "$R" query "$D" --json --sql "$1"; }
number() { sed -n "s/.*\"$1\":[ \t]*\(-\{0,1\}[0-9][0-9]*\).*/\1/p"; }
one() { sql "$1" | number n; }
status() { "$R" ctl status --run pub; }
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
serve() { [ "$(status | grep -c '"serves":.*true')" -eq "$1" ]; }
phase() { echo "(select code from enumeration where kind='txn_phase' and word='$1')"; }

"$R" demo --headless --steps 1 --engines 1 --keep --log "$T/task.db" >"$T/out0" 2>&1 </dev/null
B=$T/task.db.d/task
[ -d "$B/base" ] || { fail "the demo's task is there"; cat "$T/out0"; exit 1; }
run() { # ENGINES…
    "$R" run --headless --log "$D" --run-id pub --hf-checkpoint "$B/base" \
        --prompt-data "$B/train.jsonl" --label-key label --rm-type digits --rollout-batch-size 8 \
        --n-samples-per-prompt 4 --rollout-max-response-len 16 --num-rollout 100000 --lr 1e-4 \
        --publish-dtype f32 --rollout-skip-special-tokens --keep-policies 8 "$@" \
        >"$T/out" 2>&1 </dev/null &
    core=$!
}

# ---- kept versions that are not what was published ----
D=$T/a.db
run --local-engines 2
wait_for 120 beyond 7 || { fail "the run commits policies"; cat "$T/out"; exit 1; }
"$R" ctl pause --run pub >/dev/null
idle() { status | grep -q '"paused":.*true' && ! status | grep -q '"phase":.*sync'; }
wait_for 60 idle || fail "the run pauses"
P=$T/a.db.d/policies
now=$(committed)
v() { printf "%s/v%06d" "$P" $((now - $1)); }
refused() { # VERSION WORDS
    last=$(one "select max(txn_id) n from txn")
    "$R" ctl update --to $((now - $1)) --run pub >"$T/o" 2>&1 || { fail "$2: it is tried"; cat "$T/o"; }
    over() { [ "$(one "select count(*) n from txn where txn_id>$last and ended_us is not null")" -ge 1 ]; }
    wait_for 60 over || fail "$2: it ends"
    sql "select reason from policy_state where txn_id>$last" | grep -q "$2" ||
        { fail "$2: it says so"; sql "select reason from policy_state where txn_id>$last"; }
    [ "$(one "select count(*) n from txn_answer where txn_id>$last and phase=$(phase pause)")" -eq 0 ] ||
        fail "$2: somebody was paused"
    [ "$(committed)" -eq "$now" ] || fail "$2: v$now goes on serving"
    wait_for 60 serve 2 || fail "$2: both engines serve"
}
rm "$(v 1)/model.safetensors"
ln -s model.safetensors "$(v 1)/model.safetensors"
refused 1 "has neither model.safetensors nor"
rm "$(v 2)/model.safetensors"
printf '{"metadata":{"total_size":1},"weight_map":{"model.embed_tokens.weight":"model-00001-of-00002.safetensors"}}' \
    >"$(v 2)/model.safetensors.index.json"
refused 2 "model-00001-of-00002.safetensors"
cp "$(v 4)/model.safetensors" "$(v 3)/model.safetensors"
refused 3 "the trainer published"
dd if=/dev/zero of="$(v 4)/model.safetensors" bs=1 count=1 seek=$(($(wc -c <"$(v 4)/model.safetensors") / 2)) \
    conv=notrunc 2>/dev/null
printf '\377\377\377\177' | dd of="$(v 4)/model.safetensors" bs=1 conv=notrunc \
    seek=$(($(wc -c <"$(v 4)/model.safetensors") - 4)) 2>/dev/null
refused 4 "NaN"
"$R" ctl resume --run pub >/dev/null
wait_for 60 beyond "$now" || { fail "the run goes on after all that"; cat "$T/out"; }
"$R" ctl stop --run pub >/dev/null
wait $core
core=

# ---- an engine that does not see the shared directory ----
if ! unshare -rm sh -c 'mount -t tmpfs none "$0"' "$T" 2>/dev/null; then
    echo "an engine of another host is not tried: no mount namespaces here"
    [ $failed -eq 0 ] && echo "publication: ok"
    exit $failed
fi
mkdir "$T/shared"
D=$T/shared/b.db
for i in 1 2; do
    "$R" engine --port 0 --model-path "$B/base" >"$T/engine$i" 2>&1 </dev/null &
    parts="$parts $!"
done
unshare -rm sh -c 'mount -t tmpfs none "$0" && exec "$1" engine --port 0 --model-path "$2"' \
    "$T/shared" "$R" "$B/base" >"$T/engine3" 2>&1 </dev/null &
parts="$parts $!"
port() { sed -n "s/.* listening on .*:\([0-9]*\)$/\1/p" "$T/engine$1" | head -1; }
started() { [ -n "$(port 1)" ] && [ -n "$(port 2)" ] && [ -n "$(port 3)" ]; }
wait_for 60 started || { fail "engines say their ports"; cat "$T"/engine?; exit 1; }
run --rollout-external-engine-addrs "127.0.0.1:$(port 1)" "127.0.0.1:$(port 2)" "127.0.0.1:$(port 3)"
wait_for 120 beyond 3 || { fail "the others go on without it"; cat "$T/out"; }
serve 2 || { fail "two of three engines serve"; status; }
"$R" query "$D" events --json | grep -q "does not see the policy: /.* is .*/policies shared with its host" ||
    { fail "the event names engine, directory and question"; "$R" query "$D" events --json | grep "does not see" | head -3; }
[ "$(one "select count(*) n from txn t where t.outcome='rolled_back' and t.decided is null and not exists (select 1 from txn_answer a where a.txn_id=t.txn_id and a.phase=$(phase pause))")" -ge 1 ] ||
    { fail "that update ended before anybody was paused"; sql "select * from txn order by txn_id limit 4"; }
"$R" ctl stop --run pub >/dev/null
wait $core
core=
kill $parts 2>/dev/null
wait $parts 2>/dev/null
parts=
[ $failed -eq 0 ] && echo "publication: ok"
exit $failed
