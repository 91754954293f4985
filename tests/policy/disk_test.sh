# A disk that refuses what the trainer writes, with real processes on a file system of their own: a
# policy, its state, the log itself. The run is held with an alert that names file, cause and room;
# the engines serve the last committed policy; it goes on by itself, or at once by `ctl resume`.
set -u
R=${ROLLTOP:?}
if [ "${1:-}" != inside ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    if ! unshare -rm sh -c 'mount -t tmpfs none "$0" && mount --bind "$0" "$0"' "$folder" \
        2>/dev/null; then
        echo "skipped: no mount namespaces here (unshare -rm), so no disk can be filled"
        exit 77
    fi
    TMPDIR=$folder unshare -rm sh "$0" inside
    exit $?
fi
. "$(dirname "$0")/../lib/script.sh"
trap 'kill -9 $core 2>/dev/null' EXIT # what is mounted goes with the namespace, its folder after it
sql() { "$R" query "$D" --json --sql "$1"; }
number() { sed -n "s/.*\"$1\":[ \t]*\(-\{0,1\}[0-9][0-9]*\).*/\1/p"; }
one() { sql "$1" | number n; }
status() { "$R" ctl status --run disk; }
committed() { status | number policy_version | head -1; }
beyond() { [ "$(committed)" -gt "$1" ]; }
held() { status | grep -q "\"held\":.*$1"; }
serve() { [ "$(status | grep -c '"serves":.*true')" -eq "$1" ]; }
alerts() { [ "$(one "select count(*) n from incident where class='DISK-REFUSES' and $1")" -eq "$2" ]; }
newest() { ls "$D.d/policies" | sed -n 's/^v0*\([0-9]*\)$/\1/p' | sort -n | tail -1; }
calm() { # paused, and not between a publication and its update
    "$R" ctl pause --run disk >/dev/null
    status | grep -q '"phase":.*pause' || return 1
    [ "$(newest)" -eq "$(committed)" ] || { again && return 1; }
}
quiet() { # nothing is being written while mounts change, and nobody needs what they hide
    wait_for 60 calm || { fail "the run pauses"; status; }
}
again() { "$R" ctl resume --run disk >"$T/o" 2>&1; }
read_only() { mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || fail "$1 read-only"; }
ended() { ! kill -0 "$core" 2>/dev/null; }
end_core() { # WORDS: it ends by itself, with its status in $rc
    wait_for 60 ended || { fail "$1: the run ends"; status; kill -9 "$core"; }
    wait "$core"
    rc=$?
    core=
}
run() { # FLAG…
    "$R" run --headless --log "$D" "$@" >"$T/out" 2>&1 </dev/null &
    core=$!
}
start() { # FLAG…
    run --run-id disk --local-engines 2 --hf-checkpoint "$B/base" --prompt-data "$B/train.jsonl" \
        --label-key label --rm-type digits --rollout-batch-size 4 --n-samples-per-prompt 2 \
        --rollout-max-response-len 8 --num-rollout 100000 --publish-dtype f32 \
        --rollout-skip-special-tokens "$@"
    wait_for 120 beyond 2 || { fail "the run commits policies"; tail -5 "$T/out"; exit 1; }
}
# WHAT WORDS: the run is held for it, and everybody serves what was committed.
is_held() {
    wait_for 90 held "$1 is not written: $2 (it needs [0-9]* MiB.*): .*/disk/" ||
        { fail "$1, $2: held"; status; tail -5 "$T/out"; exit 1; }
    now=$(committed)
    wait_for 60 alerts "ended_us is null and evidence like '%$2%'" 1 ||
        { fail "$1, $2: one open alert says so"; sql "select * from incident"; }
    serve 2 || fail "$1, $2: both engines serve"
    "$R" policy verify --run disk >"$T/verify" 2>&1 ||
        { fail "$1, $2: both hold v$now and answer"; cat "$T/verify"; }
    [ "$(committed)" -eq "$now" ] || fail "$1, $2: nothing was committed meanwhile"
}
goes_on() { # WORDS
    wait_for 90 beyond "$now" || { fail "$1: goes on"; status; tail -5 "$T/out"; exit 1; }
    wait_for 60 alerts "ended_us is null" 0 || fail "$1: the alert ends"
}

"$R" demo --headless --steps 1 --engines 1 --keep --log "$T/task.db" >"$T/out0" 2>&1 </dev/null
B=$T/task.db.d/task
[ -d "$B/base" ] || { fail "the demo's task is there"; cat "$T/out0"; exit 1; }

# ---- too small from the start ----
mkdir "$T/small" "$T/disk"
mount -t tmpfs -o size=20m none "$T/small"
D=$T/small/a.db
run --run-id disk --local-engines 2 --hf-checkpoint "$B/base" --prompt-data "$B/train.jsonl" \
    --label-key label --rm-type digits --rollout-batch-size 4 --rollout-max-response-len 8 \
    --num-rollout 10
end_core "a disk that is too small"
[ $rc -ne 0 ] || fail "a disk that is too small: with a status"
grep -q "has 20 MiB free; log, policies and trainer state need about [0-9]" "$T/out" ||
    { fail "a disk that is too small: the room it needs"; tail -5 "$T/out"; }
[ -z "$(ls -A "$T/small")" ] || fail "a disk that is too small: nothing was left there"

# ---- a full disk under the policies alone, then a read-only one ----
mount -t tmpfs -o size=120m none "$T/disk"
D=$T/disk/b.db
P=$T/disk/b.db.d/policies
start
quiet
mount -t tmpfs -o size=64k none "$P"
again
is_held "the policy" "No space left on device"
status | grep -q '"phase":.*publish' || { fail "the phase is publish"; status; }
again || fail "resume while it is full"
grep -q "tried again now" "$T/o" || { fail "resume says what it does"; cat "$T/o"; }
umount "$P"
again
goes_on "room again, on the operator's word"
quiet
read_only "$P"
again
is_held "the policy" "Read-only file system"
umount "$P"
goes_on "writable again, by itself"

# ---- the trainer's state ----
S=$T/disk/b.db.d/trainer
quiet
read_only "$S"
again
is_held "the trainer's state" "Read-only file system"
trained=$(status | number step)
norm() { one "select word_id n from word where text='train/grad_norm'"; }
umount "$S"
again
goes_on "the state can be written again"
[ "$(one "select count(*) n from metric where step=$trained and name=$(norm)")" -eq 1 ] ||
    { fail "step $trained was trained once"; sql "select * from metric where step=$trained" | tail -20; }

# ---- the trainer ends while it tries again: what was held ended with it, and is held anew ----
times_held() { grep -c "^held: the trainer's state" "$T/out"; }
held_more() { [ "$(times_held)" -gt "$times" ]; }
quiet
read_only "$S"
again
is_held "the trainer's state" "Read-only file system"
times=$(times_held)
trainer=$(status | number trainer_pid)
kill -STOP "$trainer"
again
sleep 1 # the try reaches it; had it not, nothing else would be right
kill -9 "$trainer"
wait_for 90 held_more || { fail "it is held anew when the step was trained again"; tail -5 "$T/out"; }
umount "$S"
again
goes_on "the state of a trainer that was started again can be written"

# ---- the whole disk: nothing left but a little for the log ----
fill() { # KILOBYTES that stay
    room=$(df -k "$T/disk" | awk 'NR==2 {print $4}')
    dd if=/dev/zero of="$T/disk/filler" bs=1024 count=$((room - $1)) oflag=append conv=notrunc \
        2>/dev/null
}
quiet
fill 3072 # a state needs more
again
is_held "the \\(policy\\|trainer's state\\)" "No space left on device" # what comes next
"$R" ctl stop --run disk >/dev/null
end_core "stop while it is held"
[ $rc -eq 0 ] || { fail "stopped well"; tail -5 "$T/out"; }
step=$(one "select max(step) n from step where outcome='ok'")
"$R" log check "$D" >"$T/o" 2>&1 || { fail "the log is sound"; cat "$T/o"; }
alerts "ended_us is null" 0 || fail "no alert stays open in a log that has ended"
rm "$T/disk/filler"
run --resume
wait_for 120 beyond 0 || { fail "it resumes"; tail -5 "$T/out"; }
wait_for 60 serve 2 || fail "both serve after the resume"
further() { [ "$(one "select max(step) n from step where outcome='ok'")" -gt $((step + 1)) ]; }
wait_for 90 further || fail "it goes on at step $((step + 1))"
[ "$(one "select count(*) n from (select step from step where outcome='ok' group by step having count(*) > 1)")" \
    -eq 0 ] || fail "no step is done twice"

# ---- not one byte left: the log waits too, and says so ----
quiet
fill 0
"$R" ctl resume --run disk >/dev/null 2>&1 &
deaf() { status | grep -q '"recording":.*false'; }
wait_for 90 deaf || { fail "the log cannot be written, and the run says so"; status; }
serve 2 || fail "the engines serve while the log waits"
"$R" ctl note "is it written?" --run disk >"$T/o" 2>&1 && fail "nothing is done that is not written"
grep -q "the log of disk cannot be written: note is done once it can" "$T/o" ||
    { fail "what is asked of a log that waits"; cat "$T/o"; }
"$R" ctl note "and now?" --run disk >/dev/null 2>&1 &
asked=$!
now=$(committed)
rm "$T/disk/filler"
wait_for 90 beyond "$now" || { fail "room again: the run goes on"; status; tail -5 "$T/out"; }
answered() { ! kill -0 $asked 2>/dev/null; }
wait_for 60 answered || { fail "what was asked meanwhile is answered"; kill -9 $asked; }
wait $asked || fail "what was asked meanwhile is done"
"$R" ctl stop --run disk >/dev/null
end_core "stop"
"$R" log check "$D" >"$T/o" 2>&1 || { fail "the log is sound after all that"; cat "$T/o"; }

# ---- not for ever ----
D=$T/disk/c.db
P=$T/disk/c.db.d/policies
start --disk-wait 1s
quiet
read_only "$P"
again
end_core "--disk-wait is over"
[ $rc -eq 3 ] || fail "status 3"
grep -q "end: publish failed: the policy is not written: Read-only file system (.*): .*/c.db.d/policies/" "$T/out" ||
    { fail "the end names file and cause"; tail -3 "$T/out"; }
"$R" log check "$D" >"$T/o" 2>&1 || { fail "the log of that run is sound"; cat "$T/o"; }
[ $failed -eq 0 ] && echo "disk: ok"
exit $failed
