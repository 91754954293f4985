# `rolltop verify` on a fleet of its own and on one of others that a command kills and restores:
# outcomes, exit status, JSON, and the fleet left as it was found.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/fleet.sh"
info() { "$H" get "$1" /model_info | sed -n '$p'; } # ADDRESS

# A fleet of its own.
"$R" verify --local 2 --log "$T/own.db" >"$T/out" 2>&1 </dev/null
[ $? -eq 0 ] || { fail "verify --local 2 passes"; cat "$T/out"; }
[ "$(grep -c '^pass' "$T/out")" -eq 10 ] || { fail "ten steps pass"; cat "$T/out"; }
grep -q '^10 passed, 0 failed, 0 skipped' "$T/out" || fail "the table's last line"
[ -e "$T/own.db.d" ] && fail "nothing but the log is left"
"$R" query "$T/own.db" events --json | grep -q 'pass failure reported' || fail "steps are in the log"
"$R" query "$T/own.db" engines --json | grep -q '"incarnation":2' || fail "and the new process too"
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
refused '--update-from is for fleets of others' --local 2 --update-from "$T"
refused '--rollout-url is for fleets of others' --local 2 --rollout-url http://127.0.0.1:9
refused 'is of no use without --kill-cmd' --rollout-external-engine-addrs 127.0.0.1:9 --restore-cmd true
refused 'is there already' --local 2 --log "$T/own.db"
# A watch goes on in its own log, and in no other.
watches() {
    "$R" watch --headless --seconds 1 --rollout-external-engine-addrs 127.0.0.1:9 "$@" \
        >"$T/out" 2>&1 </dev/null
}
watches --log "$T/own.db"
[ $? -eq 2 ] && grep -q 'which is no watch' "$T/out" || { fail "watch into a verify's log"; cat "$T/out"; }
watches --log "$T/watch.db" && watches --log "$T/watch.db" ||
    { fail "a watch goes on in its own log"; cat "$T/out"; }
"$R" log info "$T/watch.db" | grep -q '^sessions  2' || fail "a second session of the watch"

# A fleet of others: engines and frontend that verify did not start.
cat >"$T/start" <<END
# start NAME PORT: an engine
"$R" engine --model-path "$T/task/base" --weight-version 3 --host 127.1.$own --port "\$2" \\
    --incremental-streaming-output >"$T/\$1.out" 2>&1 </dev/null &
echo \$! >"$T/\$1.pid"
END
pids() { others=$(cat "$T"/*.pid); } # to be ended with this script
sh "$T/start" e0 0
sh "$T/start" e1 0
pids
wait_for 60 listens e0 && wait_for 60 listens e1 || { fail "two engines start"; exit 1; }
A=$(address e0) B=$(address e1)
"$R" frontend --port 0 --engine "$A" --engine "$B" >"$T/f.out" 2>&1 </dev/null &
echo $! >"$T/f.pid"
pids
wait_for 60 listens f || { fail "the frontend starts"; exit 1; }
F=http://$(address f)
before=$(info "$A")

DYNAMO_ENGINE_ADDRS="$A $B" DYNAMO_ROLLOUT_URL=$F "$R" verify --log "$T/b.db" --tokens 2 --recover-timeout 120 \
    --kill-cmd "kill -9 \$(cat $T/e1.pid)" \
    --restore-cmd "sh $T/start e1 \${ROLLTOP_ENGINE##*:}" >"$T/out" 2>&1 </dev/null
[ $? -eq 0 ] || { fail "verify on a fleet of others passes"; cat "$T/out"; }
[ "$(grep -c '^pass' "$T/out")" -eq 10 ] || { fail "ten steps pass there too"; cat "$T/out"; }
pids
[ -n "$before" ] && [ "$(info "$A")" = "$before" ] || fail "$A is left as it was found"
info "$B" | grep -q '"weight_version" *: *"3"' || fail "$B too"

# Without --kill-cmd the worker is left alone; a dead engine is a failure, with status 1.
"$R" verify --rollout-external-engine-addrs "$A" "$B" --rollout-url "$F" --tokens 4 --startup-timeout 60 --log "$T/c.db" >"$T/out" 2>&1 </dev/null
[ $? -eq 0 ] && grep -q '^skip  a worker lost' "$T/out" || { fail "no --kill-cmd: skipped"; cat "$T/out"; }
kill -9 "$(cat "$T/e1.pid")"
"$R" verify --rollout-external-engine-addrs "$A" "$B" --startup-timeout 10 --log "$T/d.db" >"$T/out" 2>&1 </dev/null
[ $? -eq 1 ] && grep -q "^FAIL  engines ready.*$B does not answer" "$T/out" || { fail "a dead engine"; cat "$T/out"; }
exit $failed
