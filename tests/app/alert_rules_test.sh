# Rules of alerts: printed, checked with file and line before anything starts, and found in the log.
set -u
R=${ROLLTOP:?}
T=$(mktemp -d)
trap 'rm -rf "$T"' EXIT
mkdir "$T/run" && chmod 700 "$T/run"
XDG_STATE_HOME=$T XDG_RUNTIME_DIR=$T/run XDG_CONFIG_HOME=$T/config
export XDG_STATE_HOME XDG_RUNTIME_DIR XDG_CONFIG_HOME
unset ROLLTOP_ALERT_RULES ROLLTOP_CONFIG
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
"$R" config alerts >"$T/usual.ini" || fail "config alerts"
grep -q "^\[alert ENGINE-DEAD\]" "$T/usual.ini" || fail "no rule: $(cat "$T/usual.ini")"
"$R" config check "$T/usual.ini" | grep -q ": ok" || fail "what is printed is not read"
printf '[alert TAIL]\nhold = 5\n\n[alert NOPE]\n' >"$T/bad.ini"
"$R" config check "$T/bad.ini" >"$T/out"
[ $? -eq 1 ] || fail "mistakes are status 1"
[ "$(grep -c "^$T/bad.ini:[24]: " "$T/out")" -eq 2 ] || fail "mistakes: $(cat "$T/out")"

watches() { # STATUS WHAT FLAG…: of a watch of nobody for a second
    want=$1 what=$2
    shift 2
    rm -f "$T/w.db"
    timeout 60 "$R" watch --headless --seconds 1 --log "$T/w.db" \
        --rollout-external-engine-addrs 127.0.0.1:9 "$@" >"$T/out" 2>&1
    got=$?
    [ $got -eq "$want" ] || fail "$what: status $got: $(cat "$T/out")"
}
watches 2 "a mistake" --alert-rules "$T/bad.ini"
grep -q "$T/bad.ini:2: hold is a time" "$T/out" || fail "no line: $(cat "$T/out")"
[ ! -e "$T/w.db" ] || fail "a log was begun with mistaken rules"
watches 2 "no such file" --alert-rules "$T/none.ini"
printf '[alert ENGINE-DEAD]\nhold = 90s\n\n[alert VER-SPLIT]\noff = yes\n' >"$T/own.ini"
watches 0 "rules by flag" --alert-rules "$T/own.ini"
"$R" log info "$T/w.db" >"$T/info" || fail "log info"
grep -q "ENGINE-DEAD *hold 90s, restarts 3, severity crit (the run's own)" "$T/info" ||
    fail "log info: $(cat "$T/info")"
grep -q "VER-SPLIT *off (the run's own)" "$T/info" || fail "log info: $(cat "$T/info")"
"$R" query "$T/w.db" alert_rules --json | grep '"class":"TAIL"' | grep -q '"changed":0' ||
    fail "query: $("$R" query "$T/w.db" alert_rules --json)"
"$R" log info --json "$T/w.db" | grep -q '"class":"VER-SPLIT","words":"off","changed":true' ||
    fail "log info --json"
# The same by the environment, and by the user's configuration.
ROLLTOP_ALERT_RULES=$T/own.ini
export ROLLTOP_ALERT_RULES
watches 0 "rules by environment"
"$R" log info "$T/w.db" | grep -q "VER-SPLIT *off" || fail "rules by environment"
unset ROLLTOP_ALERT_RULES
mkdir -p "$T/config/rolltop" && cp "$T/bad.ini" "$T/config/rolltop/alerts.ini"
watches 2 "rules of the user"
grep -q "alerts.ini:2: " "$T/out" || fail "rules of the user: $(cat "$T/out")"
"$R" config check >"$T/out"
[ $? -eq 1 ] || fail "config check looks at both files: $(cat "$T/out")"
exit $failed
