#!/bin/sh
# The console as a user has it: in tmux, on a log of its own, with a configuration, resized,
# suspended and brought back; and what a dumb terminal gets.
# Skips (77) in plain words where tmux is missing.
set -u
if ! command -v tmux >/dev/null 2>&1; then
    echo "skipped: tmux is not installed"
    exit 77
fi
rolltop=${ROLLTOP:?}
folder=$(mktemp -d /tmp/rolltop-tmux-XXXXXX) || exit 1
socket="$folder/tmux"
failed=0
finish() {
    tmux -S "$socket" kill-server 2>/dev/null
    rm -rf "$folder"
}
trap finish EXIT
mux() { tmux -S "$socket" "$@"; }
screen() { mux capture-pane -p; }
# Waits until the pane shows the words (or, with "not" before them, does not), two minutes at most.
comes() { # [not] WORDS
    n=0
    while [ $n -lt 1200 ]; do
        if [ "$1" = not ]; then
            screen | grep -qF -- "$2" || return 0
        else
            screen | grep -qF -- "$1" && return 0
        fi
        n=$((n + 1))
        sleep 0.1
    done
    return 1
}
expect() {
    comes "$1" && return 0
    echo "no '$1' on the screen:"
    screen
    failed=1
    return 1
}
absent() { # a frame comes in pieces: its first words are there before the last of the old ones go
    comes not "$1" && return
    echo "'$1' is still on the screen"
    failed=1
}
# Until the terminal is the shell's again: what is typed before that may be lost with the modes of
# the console.
left() {
    ends=$((${ends:-0} + 1))
    tries=0
    while [ $tries -lt 30 ]; do
        tries=$((tries + 1))
        mux send-keys "echo ended \$(($ends))" Enter
        n=0
        while [ $n -lt 30 ]; do
            screen | grep -qF "ended $ends" && return
            n=$((n + 1))
            sleep 0.1
        done
    done
    expect "ended $ends"
}
export HOME="$folder" XDG_CONFIG_HOME="$folder" LC_ALL=C.UTF-8
mkdir -p "$folder/rolltop"
printf '[view slow]\npane = tail\nzoom = on\n[keys]\nfreeze = ctrl-f\n' >"$folder/rolltop/console.ini"
"$(dirname "$rolltop")/tests/tui_pty_test" write "$folder/run.db" || exit 1
mux -f /dev/null new-session -d -x 120 -y 40 "PS1='shell> ' exec sh -i"
expect "shell>" || exit 1
mux send-keys "'$rolltop' replay $folder/run.db" Enter
expect "<< REPLAY" || exit 1
expect "ENGINES"
mux send-keys '?'
expect "HELP"
mux send-keys / freeze
expect "ctrl-f"                         # the key as it was bound
mux send-keys Escape
mux send-keys w                         # the named view
expect "LONG TAIL"
absent "1 ENGINES"
mux send-keys m                         # names this moment, in a file beside the log
expect "name this moment"
mux send-keys here Enter
expect "named 'here'"
[ -f "$folder/run.db.marks" ] || { echo "no side file of moments"; failed=1; }
for size in 80x24 60x16 44x9 200x60 120x40; do
    mux resize-window -x "${size%x*}" -y "${size#*x}"
    if [ "$size" = 44x9 ]; then
        expect "window 44x9"
    else
        expect "LONG TAIL"
    fi
done
mux send-keys Escape Escape
expect "ENGINES"
mux send-keys C-z                       # suspend, change the size meanwhile, come back
expect "Stopped"
absent "REPLAY"
mux resize-window -x 100 -y 30
mux send-keys fg Enter
expect "<< REPLAY"
mux send-keys 4
expect "4 EVENTS"
mux send-keys q
left
absent "REPLAY"
# The recorded incident: from its end to the sample that holds up the others, typed in one go, as a
# slow line delivers it; each key is about the picture that the one before asked for.
mux resize-window -x 80 -y 24
mux send-keys "'$rolltop' demo --incident" Enter
expect "{ goes to the one before"
mux send-keys '{!' Enter
expect "Enter: its engine"
expect "on eng-02"
mux send-keys Enter
expect "DETAIL  eng-02"
mux send-keys q q q q
left
mux resize-window -x 100 -y 30
mux send-keys "TERM=dumb '$rolltop' replay $folder/run.db" Enter
expect "lines instead of a screen"
expect "help lists the commands"
mux send-keys "engine eng-05" Enter
expect "eng-05: DEAD"
mux send-keys quit Enter
left
[ $failed -eq 0 ] && echo "tmux: ok"
exit $failed
