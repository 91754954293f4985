# `rolltop policy verify`: on a live run while policies change, and on engines by their addresses,
# sound ones and one that holds something else. It changes nothing.
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
wait_for() { # SECONDS COMMAND…
    left=$(($1 * 10))
    shift
    while ! "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ $left -le 0 ] && return 1
        sleep 0.1
    done
}
number() { sed -n "s/.*\"$1\":[ \t]*\(-\{0,1\}[0-9][0-9]*\).*/\1/p"; }
committed() { "$R" ctl status --run look | number policy_version | head -1; }
beyond() { [ "$(committed)" -gt "$1" ]; }

"$R" policy verify >"$T/o" 2>&1
[ $? -eq 2 ] || fail "without a run it is a mistake of use"
"$R" policy verify "$T" >"$T/o" 2>&1
[ $? -eq 2 ] && grep -q "rollout-external-engine-addrs" "$T/o" || { fail "a directory wants addresses"; cat "$T/o"; }

"$R" demo --headless --steps 1 --engines 1 --keep --log "$T/task.db" >"$T/out0" 2>&1 </dev/null
B=$T/task.db.d/task
[ -d "$B/base" ] || { fail "the demo's task is there"; cat "$T/out0"; exit 1; }
"$R" run --headless --log "$T/a.db" --run-id look --hf-checkpoint "$B/base" \
    --prompt-data "$B/train.jsonl" --label-key label --rm-type digits --rollout-batch-size 8 \
    --n-samples-per-prompt 4 --rollout-max-response-len 16 --num-rollout 100000 --lr 1e-4 \
    --local-engines 2 --publish-dtype f32 --rollout-skip-special-tokens >"$T/out" 2>&1 </dev/null &
core=$!
wait_for 90 beyond 2 || { fail "the run commits policies"; cat "$T/out"; exit 1; }

# While policies change each moment: asked again until the answers are of one policy.
two() { "$R" policy verify --run look >"$T/o" 2>"$T/e" && grep -q "^2 of 2 engines that serve hold v" "$T/o"; }
wait_for 90 two || { fail "both engines hold the policy"; cat "$T/o" "$T/e"; }
[ "$(grep -c " holds  *v[0-9]" "$T/o")" -eq 2 ] || { fail "a row for each engine"; cat "$T/o"; }
grep -q "the policy's own forward pass" "$T/o" || fail "the trainer's word is compared"
json() { "$R" policy verify --run look --json >"$T/j" 2>&1 && grep -q '"ok":true.*"holds":true.*"canary_off":[0-9]' "$T/j"; }
wait_for 90 json || { fail "as JSON"; cat "$T/j"; }
policy=$(committed)
wait_for 60 beyond "$policy" || fail "the run goes on after it"
"$R" ctl stop --run look >/dev/null
wait $core
core=
V=$(ls -d "$T"/a.db.d/policies/v?????? | tail -1) # not what the trainer was writing

# Engines by their addresses: the first two hold the policy, the third does not.
port() { sed -n "s/.* listening on .*:\([0-9]*\)$/\1/p" "$T/engine$1" | head -1; }
for i in 1 2 3; do
    model=$V
    [ $i -eq 3 ] && model=$B/base
    "$R" engine --port 0 --model-path "$model" >"$T/engine$i" 2>&1 </dev/null &
    parts="$parts $!"
done
started() { [ -n "$(port 1)" ] && [ -n "$(port 2)" ] && [ -n "$(port 3)" ]; }
wait_for 60 started || { fail "engines say their ports"; cat "$T"/engine?; exit 1; }
one=127.0.0.1:$(port 1) two=127.0.0.1:$(port 2) odd=127.0.0.1:$(port 3)
sound() { "$R" policy verify "$V" --rollout-external-engine-addrs $one $two >"$T/o" 2>&1; }
wait_for 60 sound || { fail "sound engines hold the artifact"; cat "$T/o"; }
"$R" policy verify "$V" --rollout-external-engine-addrs $one $two $odd >"$T/o" 2>&1
[ $? -eq 1 ] || fail "status 1 where an engine holds something else"
grep -q "^eng-02 .* NO .*its checksum is .*, the policy's digest" "$T/o" || { fail "it is named"; cat "$T/o"; }
[ "$(grep -c " holds  *v\{0,1\}" "$T/o")" -ge 2 ] || { fail "the others hold it"; cat "$T/o"; }
"$R" policy verify --rollout-external-engine-addrs $one $two $odd >"$T/o" 2>&1
[ $? -eq 1 ] || { fail "status 1 without an artifact too"; cat "$T/o"; }
"$R" policy verify "$V" --version 77 --rollout-external-engine-addrs $one >"$T/o" 2>&1
[ $? -eq 1 ] && grep -q "not 77" "$T/o" || { fail "another version than named"; cat "$T/o"; }
"$R" policy verify "$V" --rollout-external-engine-addrs $one 127.0.0.1:1 >"$T/o" 2>&1
[ $? -eq 1 ] && grep -q "^eng-01 .* NO " "$T/o" || { fail "nobody listens there"; cat "$T/o"; }
"$R" policy verify "$T/none" --rollout-external-engine-addrs $one >"$T/o" 2>&1
[ $? -eq 2 ] && grep -q "is not a directory" "$T/o" || { fail "no such artifact"; cat "$T/o"; }
kill $parts 2>/dev/null
wait $parts 2>/dev/null
parts=
[ $failed -eq 0 ] && echo "policy verify: ok"
exit $failed
