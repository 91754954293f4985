# Shared by scripts that start processes; sourced, with $R the program: a folder $T of the script's
# own, which holds its state and sockets too, waits with an end, and nothing that is left behind.
T=$(mktemp -d) || exit 1
XDG_STATE_HOME=$T XDG_RUNTIME_DIR=$T
export XDG_STATE_HOME XDG_RUNTIME_DIR
unset DYNAMO_ENGINE_ADDRS DYNAMO_ROLLOUT_URL
H=$(dirname "$R")/tests/app_helper
# The end of addresses (127.1.$own, …) that other scripts do not use: there a port that is given back
# for a moment, since its engine is killed, is not given to somebody else meanwhile.
own=$(($$ / 250 % 250)).$(($$ % 250 + 1))
failed=0
core= # the run under test
others=
trap 'kill -9 $core $others 2>/dev/null; rm -rf "$T"' EXIT
trap 'exit 1' HUP INT TERM
fail() { # WORDS: what failed
    echo "FAILED: $*"
    failed=1
}
wait_for() { # SECONDS COMMAND…: three times as long, for machines that do other things, too
    left=$(($1 * 15))
    shift
    while ! "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ $left -le 0 ] && return 1
        sleep 0.2
    done
}
end_part() { # PID: kills a process of $others and waits until it is gone, with what it listened on
    kill -9 "$1"
    wait "$1" 2>/dev/null
    ended=$?
    others=$(echo " $others " | sed "s/ $1 / /") # the number may be somebody else's now
    [ $ended -eq 137 ]
}
listens() { grep -q 'listening on http://' "$T/$1.out"; }
address() { sed -n 's/.*listening on http:\/\/\([0-9.:]*\).*/\1/p' "$T/$1.out" | head -1; }
