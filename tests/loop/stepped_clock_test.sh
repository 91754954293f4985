# A whole run while the wall clock is set ahead and back under it, every 0.7 s by an hour
# (stepped_clock.c): no budget ends early, nothing is waited for an hour, nobody is taken for dead,
# and the time that things took is right.
set -u
R=${ROLLTOP:?}_stepped
T=$(mktemp -d)
XDG_STATE_HOME=$T XDG_RUNTIME_DIR=$T
export XDG_STATE_HOME XDG_RUNTIME_DIR
failed=0
trap 'rm -rf "$T"' EXIT
fail() { echo "FAILED: $*"; failed=1; }
count() { "$R" query "$T/a.db" --json --sql "select count(*) n from $1" | sed -n 's/.*"n":\([0-9]*\).*/\1/p'; }

timeout -k 5 500 "$R" demo --headless --steps 3 --engines 2 --keep --log "$T/a.db" >"$T/out" 2>&1 </dev/null
[ $? -eq 1 ] || { fail "three steps, not learned: status 1"; cat "$T/out"; }
[ "$(count "step where outcome = 'ok'")" = 3 ] || fail "three whole steps"
[ "$(count "txn where outcome = 'committed'")" = 4 ] || fail "every transaction is committed"
[ "$(count 'incident')" = 0 ] || { fail "no incident"; "$R" query "$T/a.db" events; }
[ "$(count "attempt where try > 1")" = 0 ] || fail "no sample is asked for twice"
took="metric join word on name = word_id where text like 'perf/%_time'"
[ "$(count "$took")" -gt 0 ] || fail "steps say what they took"
[ "$(count "$took and (value < 0 or value > 500)")" = 0 ] || fail "what steps took"
[ "$(count "txn where pause_us < 0 or pause_us > 500000000")" = 0 ] || fail "how long the gate was shut"
[ "$(count "txn_answer where took_us < 0 or took_us > 500000000")" = 0 ] || fail "what calls took"
exit $failed
