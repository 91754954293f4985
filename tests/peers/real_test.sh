#!/bin/sh
# The documented topology, real: Dynamo's frontend over two SGLang engines with its sidecar on a
# CPU. The conformance suite, then a run in which an engine is killed in mid-rollout and comes back
# under the same address; it goes on for two steps after the engine serves again.
#
# Runs only when asked: ROLLTOP_PEERS_RUN=1 sets the peer up in a folder of its own (3 GiB, some
# 200 s, needs a Python package index), ROLLTOP_PEERS_DIR names a folder that is set up. The peer
# programs are looked for in $ROLLTOP_PEERS, then ../shared/peers beside the source.
set -u
skip() {
    echo "skipped: $*"
    exit 77
}
fail() {
    echo "FAILED: $*"
    failed=1
}
P=${ROLLTOP_PEERS:-$ROLLTOP_SOURCE/../shared/peers}
[ -n "${ROLLTOP_PEERS_RUN:-}${ROLLTOP_PEERS_DIR:-}" ] ||
    skip "real peers are started only with ROLLTOP_PEERS_RUN=1 or ROLLTOP_PEERS_DIR=FOLDER"
[ -x "$P/dynamo-sglang/peer" ] || skip "no peer programs in $P"
T=$(mktemp -d)
D=${ROLLTOP_PEERS_DIR:-$T/peer}
port=${ROLLTOP_PEERS_PORT:-18400}
XDG_STATE_HOME=$T/state XDG_RUNTIME_DIR=$T/rt
export XDG_STATE_HOME XDG_RUNTIME_DIR
mkdir -m 700 "$T/state" "$T/rt"
failed=0
run=
peer() {
    "$P/dynamo-sglang/peer" "$@"
}
finish() {
    [ -n "$run" ] && kill "$run" 2>/dev/null && wait "$run" 2>/dev/null
    peer down "$D" >/dev/null 2>&1
    rm -rf "$T"
}
trap finish EXIT
peer setup "$D" >"$T/setup" 2>&1 || skip "the peer cannot be set up: $(tail -1 "$T/setup")"
peer up "$D" --engines 2 --port "$port" >"$T/up" 2>&1 ||
    skip "the peer does not start: $(tail -1 "$T/up")"
e0=127.0.0.1:$((port + 100))
e1=127.0.0.1:$((port + 101))

# Its update test comes behind the registration of both, and leaves engine 1 on its own weights.
"$(dirname "$ROLLTOP")/tests/peers_conformance_test" --engine "http://$e1" \
    --frontend "http://127.0.0.1:$port" || fail "the recorded shapes are not those of this peer"

i=0
while [ $i -lt 32 ]; do
    printf '{"input":"What is %d plus %d?","label":"%d"}\n' $i $((i + 3)) $((2 * i + 3))
    i=$((i + 1))
done >"$T/prompts.jsonl"
DYNAMO_ENGINE_ADDRS="$e0 $e1" DYNAMO_ROLLOUT_URL=http://127.0.0.1:$port \
    "$ROLLTOP" run --headless --log "$T/run.db" --hf-checkpoint "$D/model-a" \
    --prompt-data "$T/prompts.jsonl" --input-key input --label-key label --rm-type random \
    --num-rollout 200 --rollout-batch-size 4 --n-samples-per-prompt 4 --lr 1e-4 \
    --rollout-max-response-len 96 --sglang-incremental-streaming-output >"$T/out" 2>&1 &
run=$!
ask() {
    "$ROLLTOP" query "$T/run.db" "$@" 2>/dev/null
}
i=0
until ask events | grep -q "v1 committed on 2 engines" || [ $i -ge 120 ]; do
    sleep 1
    i=$((i + 1))
done
sleep 3
peer kill "$D" 0 || fail "engine 0 cannot be killed"
python3 "$ROLLTOP_SOURCE/tests/peers/start_engine.py" "$P/dynamo-sglang/peer" "$D" 0 ||
    fail "engine 0 does not start again"
number() {
    ask --json --sql "$1" | sed -n 's/.*"n":\([0-9]*\).*/\1/p'
}
steps() {
    number "select count(*) n from step where outcome = 'ok'"
}
i=0
until ask events | grep -q "eng-00 .*serves again" || [ $i -ge 500 ] || ! kill -0 "$run"; do
    sleep 1 # it starts in 20 s on a quiet machine, and its sidecar registers 5 to 20 s after that
    i=$((i + 1))
done
ask events | grep -q "eng-00 .*serves again" || fail "engine 0 does not serve again"
from=$(steps)
i=0
until [ "$(steps)" -ge $((from + 2)) ] || [ $i -ge 200 ]; do
    sleep 1
    i=$((i + 1))
done
"$ROLLTOP" ctl stop >/dev/null || fail "the run cannot be stopped"
wait "$run"
status=$?
run=
cat "$T/out"
ask events
[ $status -le 1 ] || fail "the run ended with $status"
ask events | grep -q "committed on 2 engines" || fail "no policy was committed on both engines"
ask events | grep -q "eng-00  dead" || fail "the loss of engine 0 is not told"
ask events | tail -n 12 | grep -q "committed on 2 engines" || fail "not after its return either"
short=$(number "select count(*) n from step where step >= 0 and outcome = 'ok' and samples <> 16")
[ "$short" -eq 0 ] || fail "$short steps have not their 16 samples"
twice="select sample_id from attempt where fate = 1 group by sample_id having count(*) > 1"
[ "$(number "select count(*) n from ($twice)")" -eq 0 ] || fail "a sample was accepted twice"
models=$(python3 -c "import json,sys,urllib.request as u; \
print(len(json.load(u.urlopen('http://127.0.0.1:$port/v1/models'))['data']))")
[ "$models" = 1 ] || fail "the frontend sees $models models"
exit $failed
