# `rolltop verify` on a fleet of its own and on one of others that a command kills and restores:
# outcomes, exit status, JSON, and the fleet left as it was found.
set -u
R=${ROLLTOP:?}
T=$(mktemp -d)
XDG_STATE_HOME=$T XDG_RUNTIME_DIR=$T
export XDG_STATE_HOME XDG_RUNTIME_DIR
unset DYNAMO_ENGINE_ADDRS DYNAMO_ROLLOUT_URL
failed=0
trap 'kill -9 $(cat "$T"/*.pid 2>/dev/null) 2>/dev/null; rm -rf "$T"' EXIT
fail() { echo "FAILED: $*"; failed=1; }
get() { # URL: the body, with whatever is there
    python3 -c "import sys, urllib.request as u; print(u.urlopen('$1', timeout=5).read().decode())" 2>/dev/null
}

# A fleet of its own.
"$R" verify --local 2 --log "$T/a.db" >"$T/out" 2>&1 </dev/null
[ $? -eq 0 ] || { fail "verify --local 2 passes"; cat "$T/out"; }
[ "$(grep -c '^pass' "$T/out")" -eq 10 ] || { fail "ten steps pass"; cat "$T/out"; }
grep -q '^10 passed, 0 failed, 0 skipped' "$T/out" || fail "the table's last line"
[ -e "$T/a.db.d" ] && fail "nothing but the log is left"
"$R" query "$T/a.db" events --json | grep -q 'pass failure reported' || fail "steps are in the log"
"$R" query "$T/a.db" engines --json | grep -q '"incarnation":2' || fail "and the new process too"
"$R" verify --local 2 --json >"$T/out" 2>"$T/err" </dev/null || fail "verify --json passes"
grep -q '^{"ok":true,.*"step":"left as it was found","outcome":"pass"' "$T/out" || fail "JSON"

# Mistakes start nothing.
refused() { # WORDS FLAGS…
    words=$1
    shift
    "$R" verify "$@" >"$T/out" 2>&1 </dev/null
    [ $? -eq 2 ] && grep -q -- "$words" "$T/out" || { fail "$*: \"$words\""; cat "$T/out"; }
}
refused 'no fleet to verify'
refused 'two fleets' --local 2 --rollout-external-engine-addrs 127.0.0.1:9
refused 'is not the address of an engine' --rollout-external-engine-addrs 127.0.0.1
refused 'for fleets of others' --local 2 --kill-cmd true
refused 'is of no use without --kill-cmd' --rollout-external-engine-addrs 127.0.0.1:9 --restore-cmd true
refused 'is there already' --local 2 --log "$T/a.db"

# A fleet of others: engines and frontend that verify did not start.
wait_file() { i=0; while ! grep -q 'listening on http://' "$1" && [ $i -lt 100 ]; do sleep 0.1; i=$((i + 1)); done; }
address() { sed -n 's/.*listening on http:\/\/\([0-9.:]*\).*/\1/p' "$1" | head -1; }
"$R" demo --headless --steps 1 --engines 1 --keep --log "$T/m.db" >"$T/out" 2>&1 </dev/null
[ -d "$T/m.db.d/task/base" ] || { fail "the demo makes a base model"; cat "$T/out"; exit 1; }
cat >"$T/engine" <<END
# engine NUMBER PORT
"$R" engine --model-path "$T/m.db.d/task/base" --weight-version 3 --port "\$2" \\
    --incremental-streaming-output >"$T/e\$1.out" 2>&1 </dev/null &
echo \$! >"$T/e\$1.pid"
END
sh "$T/engine" 0 0; sh "$T/engine" 1 0
wait_file "$T/e0.out"; wait_file "$T/e1.out"
A=$(address "$T/e0.out") B=$(address "$T/e1.out")
"$R" frontend --port 0 --engine "$A" --engine "$B" >"$T/f.out" 2>&1 </dev/null &
echo $! >"$T/f.pid"
wait_file "$T/f.out"
F=http://$(address "$T/f.out")
before=$(get "http://$A/model_info")

DYNAMO_ENGINE_ADDRS="$A $B" DYNAMO_ROLLOUT_URL=$F "$R" verify --log "$T/b.db" --tokens 2 --recover-timeout 20 \
    --kill-cmd "kill -9 \$(cat $T/e1.pid)" \
    --restore-cmd "sh $T/engine 1 \${ROLLTOP_ENGINE##*:}" >"$T/out" 2>&1 </dev/null
[ $? -eq 0 ] || { fail "verify on a fleet of others passes"; cat "$T/out"; }
[ "$(grep -c '^pass' "$T/out")" -eq 10 ] || { fail "ten steps pass there too"; cat "$T/out"; }
if [ -n "$before" ]; then
    [ "$(get "http://$A/model_info")" = "$before" ] || fail "$A is left as it was found"
    get "http://$B/model_info" | grep -q '"weight_version" *: *"3"' || fail "$B too"
fi

# Without --kill-cmd the worker is left alone; a dead engine is a failure, with status 1.
"$R" verify --rollout-external-engine-addrs "$A" "$B" --rollout-url "$F" --tokens 4 --startup-timeout 10 --log "$T/c.db" >"$T/out" 2>&1 </dev/null
[ $? -eq 0 ] && grep -q '^skip  a worker lost' "$T/out" || { fail "no --kill-cmd: skipped"; cat "$T/out"; }
kill -9 "$(cat "$T/e1.pid")"
"$R" verify --rollout-external-engine-addrs "$A" "$B" --startup-timeout 3 --log "$T/d.db" >"$T/out" 2>&1 </dev/null
[ $? -eq 1 ] && grep -q "^FAIL  engines ready.*$B does not answer" "$T/out" || { fail "a dead engine"; cat "$T/out"; }
exit $failed
