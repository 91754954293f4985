# Output that cannot be written is never status 0, whatever the subcommand; pictures and events end
# in order when they are interrupted, when their reader has gone, and when nobody reads.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/script.sh"
# A log whose run has not ended, so that following it waits.
"$(dirname "$R")/tests/tui_pty_test" write "$T/run.db" || exit 1

refuses() { # WORDS of the command line
    if [ -c /dev/full ]; then
        timeout 120 "$R" "$@" >/dev/full 2>"$T/err" </dev/null
        got=$?
        [ $got -eq 3 ] || fail "rolltop $*: status $got on a full disk"
        grep -q "cannot write\|could not be written" "$T/err" || fail "rolltop $*: $(cat "$T/err")"
    fi
    timeout 120 "$R" "$@" >&- 2>"$T/err" </dev/null
    got=$?
    [ $got -eq 3 ] || fail "rolltop $*: status $got with stdout closed"
    grep -q "cannot write\|could not be written" "$T/err" || fail "rolltop $*: $(cat "$T/err")"
}
for sub in $("$R" --help | sed -n 's/^  \([a-z]*\)  *.*/\1/p'); do
    refuses "$sub" --help
done
refuses --help
refuses --version
refuses --version --verbose
refuses ls
refuses theme list
refuses theme roles
refuses config keys
refuses completion fish
refuses query "$T/run.db" steps
refuses query "$T/run.db" steps --json
refuses policies "$T/run.db"
refuses replay "$T/run.db"
refuses demo --incident
refuses snapshot "$T/run.db"
refuses snapshot "$T/run.db" --json
refuses top --batch "$T/run.db"
refuses events "$T/run.db"

# ends FILE STATUS WHAT: within two minutes FILE holds the status.
ends() {
    n=0
    while [ ! -s "$1" ] && [ $n -lt 1200 ]; do
        n=$((n + 1))
        sleep 0.1
    done
    got=$(cat "$1" 2>/dev/null)
    [ "$got" = "$2" ] || fail "$3: status \"$got\", wanted $2"
}
# lines FILE COUNT: waits until FILE has that many lines.
lines() {
    n=0
    while [ "$(wc -l <"$1")" -lt "$2" ] && [ $n -lt 1200 ]; do
        n=$((n + 1))
        sleep 0.1
    done
}
# The status of a command that is a child of this shell, beside its pid.
begin() { # OUT NAME WORDS…
    out=$1 name=$2
    shift 2
    ("$R" "$@" >"$out" 2>"$T/$name.err" & echo $! >"$T/$name.pid"; wait $!; echo $? >"$T/$name.st") &
    while [ ! -s "$T/$name.pid" ]; do sleep 0.05; done
    others="$others $(cat "$T/$name.pid")"
}
for how in INT TERM HUP; do
    : >"$T/out"
    begin "$T/out" "follow$how" events "$T/run.db" --follow -n 3 --json
    lines "$T/out" 3
    kill -$how "$(cat "$T/follow$how.pid")"
    ends "$T/follow$how.st" 0 "events --follow after SIG$how"
    [ "$(wc -l <"$T/out")" -eq 3 ] || fail "events --follow -n 3 wrote $(wc -l <"$T/out") lines"
    [ -s "$T/follow$how.err" ] && fail "events --follow said: $(cat "$T/follow$how.err")"
done
# Its reader goes while there is nothing to write: it ends all the same, and says nothing.
( "$R" events "$T/run.db" --follow -n 1 2>"$T/gone.err"; echo $? >"$T/gone.st" ) | head -n 1 >/dev/null
ends "$T/gone.st" 3 "events --follow without a reader"
[ -s "$T/gone.err" ] && fail "events --follow without a reader said: $(cat "$T/gone.err")"
# So does a plain console, whichever of its writes meets the empty pipe.
for turn in 1 2 3 4 5; do
    timeout 120 "$R" demo --incident 2>"$T/gone.err" </dev/null | head -n 1 >/dev/null
    [ -s "$T/gone.err" ] && fail "turn $turn, a console without a reader: $(cat "$T/gone.err")"
done
# Nobody reads, the pipe is full: an interrupt is heard.
mkfifo "$T/pipe"
(
    head -c 1 >"$T/began" # the first byte is out: the rest fills the pipe sooner or later
    exec sleep 600
) <"$T/pipe" &
others="$others $!"
begin "$T/pipe" full top --batch "$T/run.db" --json -d 0.1 --at -60s
while [ ! -s "$T/began" ]; do sleep 0.1; done
kill -INT "$(cat "$T/full.pid")"
ends "$T/full.st" 0 "top --batch into a full pipe, interrupted"

says() { # STATUS WORDS COMMAND…
    status=$1 words=$2
    shift 2
    timeout 120 "$R" "$@" >"$T/out" 2>&1 </dev/null
    got=$?
    { [ $got -eq "$status" ] && grep -qF -- "$words" "$T/out"; } ||
        fail "rolltop $*: status $got, wanted $status and \"$words\": $(head -n 3 "$T/out")"
}
says 2 "there is no log" snapshot "$T/none.db"
says 2 "no run is alive" snapshot
says 0 "replay of" demo --incident
# In lines a replay begins with the moment that was asked for, not with another before it.
says 0 "step 7, phase" replay "$T/rolltop/incident.db" --plain --at 7
[ "$(grep -c ' phase ' "$T/out")" -eq 1 ] || fail "replay --plain --at shows: $(cat "$T/out")"
printf 'n\303\251e\033[31m\nevents\nquit\n' |
    LC_ALL=C "$R" replay "$T/rolltop/incident.db" --plain >"$T/out" 2>"$T/err"
grep -q "no command 'n?e?\[31m'" "$T/out" || fail "a command that there is not: $(cat "$T/out")"
[ "$(LC_ALL=C tr -d '\000-\177' <"$T/out" | wc -c)" -eq 0 ] ||
    fail "--plain keeps to ASCII where the locale does"
says 0 "no event before this moment has 'nowhere' in it" \
    replay "$T/rolltop/incident.db" --plain --at nowhere
says 2 "takes no other flag" demo --incident --seed 3
says 2 "wants --batch" top "$T/run.db"
says 2 "-n wants a whole number" top --batch "$T/run.db" -n many
says 2 "-d is given twice" top --batch -d 1 -d 2
says 2 "unknown flag -x" top --batch -x
says 2 "--at 99999 is not in this log" snapshot "$T/run.db" --at 99999
says 2 "--at \"\" is no moment" snapshot "$T/run.db" --at ""
says 2 "leave one of them out" events "$T/run.db" --run a
says 2 "unexpected word b" events "$T/run.db" b
says 0 "ENGINES" top --batch "$T/run.db" -n=1
says 0 "eng-05: DEAD" snapshot "$T/run.db"
says 0 '"schema":"rolltop.snapshot.1"' snapshot "$T/run.db" --json
"$R" snapshot "$T/run.db" | LC_ALL=C grep -q "$(printf '\033')" && fail "an escape sequence in text"
[ $failed -eq 0 ] && echo "output: ok"
exit $failed
