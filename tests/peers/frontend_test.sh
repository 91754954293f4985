#!/bin/sh
# A real Dynamo frontend over its own mock engines: readiness, a rollout through it, its list of
# instances live while workers come and are killed, and a fleet that can serve nobody.
#
# Runs only when asked, since it downloads: ROLLTOP_PEERS_FRONTEND=1, or =FOLDER to keep what it
# installs there (0.3 GiB; some 20 s with a quick package index, given up after 5 minutes). .ci/run
# asks. Where the packages do not install it is skipped in plain words, and the recorded exchanges,
# which every test run replays, stand in. Dynamo's event plane binds ports on every address,
# whatever it is told.
set -u
skip() {
    echo "skipped: $*; the recorded exchanges of a real frontend stand in"
    exit 77
}
[ -n "${ROLLTOP_PEERS_FRONTEND:-}" ] ||
    skip "a real Dynamo frontend is installed only with ROLLTOP_PEERS_FRONTEND=1"
python=$(command -v python3) || skip "no python3 here"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
    skip "the Dynamo frontend needs Python 3.10 or newer"
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/fleet.sh"
D=$T/dynamo
[ "$ROLLTOP_PEERS_FRONTEND" = 1 ] || D=$ROLLTOP_PEERS_FRONTEND
if [ ! -f "$D/installed" ]; then
    timeout 300 "$python" -m venv "$D" >"$T/pip" 2>&1 || skip "no virtual environment: $(tail -1 "$T/pip")"
    timeout -k 10 300 "$D/bin/pip" install -q --no-deps --disable-pip-version-check --no-input \
        --retries 1 --timeout 30 \
        -r "$ROLLTOP_SOURCE/tests/peers/dynamo.txt" >"$T/pip" 2>&1 ||
        skip "the packages of the Dynamo frontend do not install (5 minutes are tried): $(tail -1 "$T/pip")"
    timeout 120 "$D/bin/python" -c 'import dynamo.frontend, dynamo.mocker' >"$T/pip" 2>&1 ||
        skip "the Dynamo frontend does not run on this machine: $(tail -1 "$T/pip")"
    : >"$D/installed"
fi

# Its ports are fixed before it starts: a row that is free at this moment, below those that the
# system gives away by itself.
port=${ROLLTOP_PEERS_PORT:-$("$python" - <<'PY'
import random, socket
for _ in range(200):
    base = random.randrange(18000, 28000, 20)
    try:
        for port in [base] + [base + 10 + k for k in range(1, 5)]:
            with socket.socket() as s:
                s.bind(("127.0.0.1", port))
    except OSError:
        continue
    print(base)
    break
PY
)}
[ -n "$port" ] || skip "no row of free ports here"
F=http://127.0.0.1:$port

mkdir -p "$T/run/kv"
# Dynamo serves no model without a chat template.
cp -r "$T/task/base" "$T/model"
chmod u+w "$T/model" "$T/model"/*
"$python" - "$T/model/tokenizer_config.json" <<'PY'
import json, os, sys
path = sys.argv[1]
config = json.load(open(path)) if os.path.exists(path) else {}
config["chat_template"] = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
json.dump(config, open(path, "w"))
PY
dynamo() { # NAME MODULE FLAGS…: in $pid
    name=$1
    shift
    env HOME="$T/run" HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 DYN_DISCOVERY_BACKEND=file \
        DYN_FILE_KV="$T/run/kv" DYN_REQUEST_PLANE=tcp DYN_EVENT_PLANE=zmq \
        DYN_TCP_RPC_HOST=127.0.0.1 DYN_TCP_RESPONSE_STREAM_HOST=127.0.0.1 \
        DYN_EVENT_PLANE_HOST=127.0.0.1 DYN_SDK_DISABLE_ANSI_LOGGING=1 DYN_LOG=warn \
        DYN_NAMESPACE=rolltop DYN_SGLANG_ENABLE_GENERATE=1 DYN_SYSTEM_HOST=127.0.0.1 \
        DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS='["generate"]' ${system:+DYN_SYSTEM_PORT=$system} \
        "$D/bin/python" -m "$@" >"$T/$name.out" 2>&1 </dev/null &
    pid=$!
    others="$others $pid"
}
worker() { # K
    system=$((port + 10 + $1))
    dynamo "worker$1" dynamo.mocker --model-path "$T/model" --model-name policy \
        --engine-type sglang --sglang-generate --speedup-ratio 1
    system=
}
system=
dynamo frontend dynamo.frontend --http-host 127.0.0.1 --http-port "$port" --router-mode round-robin
worker 1; w1=$pid
worker 2; w2=$pid
broken() {
    echo "FAILED: $*"
    tail -n 5 "$T"/frontend.out "$T"/worker*.out "$T/watch" 2>/dev/null
    failed=1
}
"$R" watch --headless --rollout-url "$F" --engines-from-frontend 0 --discover-interval 1 \
    --run-id dynamo --log "$T/watch.db" >"$T/watch" 2>&1 </dev/null &
watcher=$!
others="$others $watcher"
said() { [ "$(grep -c "$1" "$T/watch")" -ge "$2" ]; }
wait_for 120 said "frontend can serve: policy: ready" 1 || { broken "the frontend gets ready"; exit 1; }
wait_for 60 said "listed by the frontend's instances" 2 || broken "both workers are learnt of"

# As far as mock engines reach: a rollout, and no updates.
DYNAMO_ENGINE_ADDRS="127.0.0.1:$((port + 11)) 127.0.0.1:$((port + 12))" "$R" verify \
    --rollout-url "$F" --tokens 8 --log "$T/verify.db" >"$T/verify" 2>&1 </dev/null
[ $? -eq 1 ] || broken "verify ends with 1"
cat "$T/verify"
grep -q '^pass  frontend ready.*lists every engine, and each is ready' "$T/verify" || broken "frontend ready"
grep -q '^pass  rollout .* 8 of 8 samples, 64 tokens, no numbered version' "$T/verify" || broken "a rollout"
grep -q '^FAIL  update to all engines.*does not say which checkpoint' "$T/verify" || broken "no updates"

# Its list, live: one comes, one is killed and stays listed for some seconds, then all are.
worker 3; w3=$pid
wait_for 60 said "listed by the frontend's instances" 3 || broken "a third worker is learnt of"
kill -9 "$w1"
wait_for 120 said "gone: no longer listed by the frontend's instances" 1 || broken "a killed one goes"
kill -9 "$w2" "$w3"
wait_for 120 said "gone: no longer listed by the frontend's instances" 3 || broken "and the others"
wait_for 60 said 'frontend answers, and can serve nobody' 1 || broken "nobody can be served"
worker 4
wait_for 120 said 'frontend can serve' 2 || broken "a new worker serves"
kill -INT "$watcher"
wait "$watcher"
cat "$T/watch"
exit $failed
