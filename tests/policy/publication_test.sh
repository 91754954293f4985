# Bad input at publication, with real processes: artifacts that are not what was published, and an
# engine that does not see the shared directory. Each is refused by name before anybody is paused,
# and the last committed policy goes on serving.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/fleet.sh"
small="--rollout-batch-size 8 --n-samples-per-prompt 4 --rollout-max-response-len 16"

# ---- kept versions that are not what was published ----
run kept.db $small --local-engines 2 --keep-policies 8
wait_for 120 beyond 7 || { fail "the run commits policies"; exit 1; }
"$R" ctl pause >/dev/null
wait_for 60 phase_is pause || fail "the run pauses"
P=$T/kept.db.d/policies
now=$(committed)
v() { printf "%s/v%06d" "$P" $((now - $1)); }
reasons() { sql "select reason from policy_state where txn_id>$before"; }
over() { [ "$(number "select count(*) n from txn where txn_id>$before and ended_us is not null")" -ge 1 ]; }
reason() { reasons | grep -q "$1"; }
refused() { # VERSION WORDS
    before=$(number "select max(txn_id) n from txn")
    "$R" ctl update --to $((now - $1)) >"$T/o" 2>&1 || { fail "$2: it is tried"; cat "$T/o"; }
    wait_for 60 over || fail "$2: it ends"
    wait_for 60 reason "$2" || { fail "$2: it says so"; reasons; }
    [ "$(number "select count(*) n from txn_answer where txn_id>$before and phase=$(txn_phase pause)")" -eq 0 ] ||
        fail "$2: somebody was paused"
    [ "$(committed)" -eq "$now" ] || fail "$2: v$now goes on serving"
    wait_for 60 serve 2 || fail "$2: both engines serve"
    wait_for 60 phase_is pause || fail "$2: the run stays paused"
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

# Somebody else is still writing it: it grows, or its bytes change all the time.
whole=$(v 5)/model.safetensors
cp "$whole" "$T/whole"
writer() { # COMMAND…: in $pid
    "$@" </dev/null >/dev/null 2>&1 &
    pid=$!
    others="$others $pid"
}
half=$(($(wc -c <"$T/whole") / 2))
: >"$whole"
writer sh -c 'exec >>"$2"; head -c "$1" "$3"; while :; do sleep 0.05; printf x; done' - "$half" "$whole" "$T/whole"
grows() { [ "$(wc -c <"$whole")" -gt "$half" ]; }
wait_for 60 grows || fail "a process writes it"
refused 5 "model.safetensors"
reasons | grep -q "$whole.* the file differ in length" || { fail "a file that grows is named, with what is wrong"; reasons; }
end_part "$pid" || fail "it was written until the end"
changes=$(v 6)/model.safetensors
writer sh -c 'while :; do dd if=/dev/urandom of="$1" bs=65536 count=4 seek=4 conv=notrunc; done' - "$changes"
other() { ! cmp -s "$changes" "$T/before"; }
cp "$changes" "$T/before"
wait_for 60 other || fail "a process changes it"
refused 6 "$changes.* changed while\\|$(dirname "$changes") holds digest .* the trainer published\\|NaN\\|infinit\\|norm"
end_part "$pid" || fail "it was changed until the end"
"$R" ctl resume >/dev/null
wait_for 60 beyond "$now" || fail "the run goes on after all that"
end_run 32

# ---- a checkpoint that somebody else is still writing when a run is to start ----
mkdir "$T/growing"
cp "$T/task/base"/* "$T/growing"
whole=$T/growing/model.safetensors
: >"$whole"
writer sh -c 'exec >>"$2"; head -c "$1" "$3"; while :; do sleep 0.05; printf x; done' - "$half" "$whole" "$T/task/base/model.safetensors"
wait_for 60 grows || fail "a process writes the checkpoint"
for flags in "--hf-checkpoint $T/growing" "--hf-checkpoint $T/task/base --load $T/growing"; do
    # shellcheck disable=SC2086
    "$R" run --headless --log "$T/no.db" --local-engines 1 $flags --prompt-data "$T/task/train.jsonl" \
        --label-key label --rm-type digits --num-rollout 2 $small >"$T/no" 2>&1 </dev/null &&
        fail "$flags: a checkpoint that grows is refused"
    grep -q "$whole.* the file differ in length" "$T/no" || { fail "$flags: it names the file"; cat "$T/no"; }
    [ -e "$T/no.db" ] && fail "$flags: nothing is begun"
done
end_part "$pid" || fail "it was written until the end"

# ---- an engine that does not see the shared directory ----
if ! unshare -rm sh -c 'mount -t tmpfs none "$0"' "$T" 2>/dev/null; then
    echo "an engine of another host is not tried: no mount namespaces here"
    [ $failed -eq 0 ] && echo "publication: ok"
    exit $failed
fi
mkdir "$T/shared"
engine one 127.0.0.1 0 || { fail "an engine starts"; exit 1; }
one=127.0.0.1:$port
engine two 127.0.0.1 0 || { fail "an engine starts"; exit 1; }
two=127.0.0.1:$port
unshare -rm sh -c 'mount -t tmpfs none "$0" && exec "$1" engine --port 0 --model-path "$2"' \
    "$T/shared" "$R" "$T/task/base" >"$T/far.out" 2>&1 </dev/null &
others="$others $!"
wait_for 60 listens far || { fail "an engine elsewhere starts"; cat "$T/far.out"; exit 1; }
run shared/far.db $small --rollout-external-engine-addrs "$one" "$two" "$(address far)"
wait_for 120 beyond 3 || fail "the others go on without it"
wait_for 60 serve 2 || fail "two of three engines serve"
serves "$(address far)" && fail "the one that does not see the directory serves"
wait_for 60 event "does not see the policy: /% is %/policies shared with its host" ||
    { fail "the event names engine, directory and question"; "$R" query "$T/$log" events | grep "does not see" | head -3; }
[ "$(number "select count(*) n from txn t where t.outcome='rolled_back' and t.decided is null and not exists (select 1 from txn_answer a where a.txn_id=t.txn_id and a.phase=$(txn_phase pause))")" -ge 1 ] ||
    { fail "that update ended before anybody was paused"; sql "select * from txn order by txn_id limit 4"; }
end_run 32
[ $failed -eq 0 ] && echo "publication: ok"
exit $failed
