# rolltop log: every verb on a real log, beside a live writer and after it; bad input in one line.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/script.sh"
# says STATUS WORDS VERB…: it ends with that status and its output holds the words.
says() {
    status=$1 words=$2
    shift 2
    timeout 120 "$R" log "$@" >"$T/out" 2>"$T/err" </dev/null
    got=$?
    if [ $got -ne "$status" ] || ! cat "$T/out" "$T/err" | grep -qF -- "$words"; then
        fail "rolltop log $*: status $got, wanted $status and \"$words\""
        cat "$T/out" "$T/err"
    elif [ "$status" -eq 2 ] && [ "$(wc -l <"$T/err")" -ne 1 ]; then
        fail "rolltop log $*: more than one line"
    fi
}
rows() { "$R" log info "$1" 2>/dev/null | awk -v t="$2" '$1 == t { print $2 }'; }
has_probes() { [ "$(rows "$T/run.db" probe)" -gt 20 ]; }

says 0 "usage: rolltop log info" --help
says 2 "there are info, check, snapshot" inof "$T/x.db"
says 2 "log has no verb" ""
says 2 "log info wants one log file" info
says 2 "wants a log file and the name of a new one" snapshot "$T/x.db"
says 2 "$T/x.db" info "$T/x.db"
says 2 "$T/x.db" check "$T/x.db"
says 2 "there is no log" compact "$T/x.db"
says 2 "there is no log" trim "$T/x.db" --keep-age 1h
says 2 "$T/x.db" snapshot "$T/x.db" "$T/y.db"
says 2 "$T/x.db" salvage "$T/x.db" "$T/y.db"
says 2 "log trim wants --keep-age or --max-size" trim "$T/x.db"
says 2 "--keep-age 5x is no age" trim "$T/x.db" --keep-age 5x
says 2 "--max-size lots is no size" trim "$T/x.db" --max-size lots
# What is no log is named and stays as it is, to the byte, with nothing beside it.
mkdir "$T/dir"
mkfifo "$T/fifo"
: >"$T/empty"
printf 'x' >"$T/byte"
head -c 100000 /dev/urandom >"$T/noise"
cp "$T/noise" "$T/noise.was"
for verb in compact "trim --keep-age 1h"; do
    says 2 "dir is not a regular file" $verb "$T/dir"
    says 2 "fifo is not a regular file" $verb "$T/fifo"
    says 2 "empty is empty: no run was recorded" $verb "$T/empty"
    says 2 "byte is empty: no run was recorded" $verb "$T/byte"
    says 2 "noise: cannot read the log: file is not a database" $verb "$T/noise"
done
[ "$(wc -c <"$T/empty") $(cat "$T/byte")" = "0 x" ] || fail "a file that is no log was written to"
cmp "$T/noise" "$T/noise.was" || fail "a file of noise was written to"
ls "$T" | grep -E '(dir|fifo|empty|byte|noise)\.lock' && fail "a lock beside what is no log"
timeout 30 "$R" watch --rollout-external-engine-addrs 127.0.0.1:1 --headless \
    --log-keep-age never >"$T/out" 2>&1 </dev/null && fail "watch took an age of never"
grep -qF -- "--log-keep-age never is no age" "$T/out" || fail "watch: $(cat "$T/out")"

# A live log: an engine that is watched.
"$R" engine --model-path "$ROLLTOP_SOURCE/tests/data/golden-qwen3/tied" --synthetic --port 0 \
    >"$T/engine.out" 2>&1 </dev/null &
others=$!
wait_for 60 listens engine || fail "an engine starts"
"$R" watch --rollout-external-engine-addrs "$(address engine)" --headless --log "$T/run.db" \
    --log-max-size 50M --log-keep-age 24h >"$T/watch" 2>&1 </dev/null &
core=$!
wait_for 60 has_probes || fail "twenty probes come"
says 0 "the last one is not ended" info "$T/run.db"
says 0 "sound: the file" check "$T/run.db"
says 0 "bytes" snapshot "$T/run.db" "$T/copy.db"
says 2 "is there already" snapshot "$T/run.db" "$T/copy.db"
says 2 "is being written by another rolltop (process $core)" compact "$T/run.db"
says 2 "is being written by another rolltop (process $core)" trim "$T/run.db" --keep-age 1h
says 0 "sound: the file" check "$T/copy.db"
[ "$(rows "$T/copy.db" probe)" -gt 20 ] || fail "the copy has $(rows "$T/copy.db" probe) probes"
before=$(rows "$T/run.db" probe)
more_probes() { [ "$(rows "$T/run.db" probe)" -gt "$before" ]; }
wait_for 60 more_probes || fail "a probe comes after the copy"
kill $core
wait $core 2>/dev/null
core=

# After it.
timeout 60 "$R" policy show 7 --log "$T/run.db" >"$T/out" 2>"$T/err"
[ $? -eq 2 ] && grep -qF "knows no policy 7" "$T/err" && [ ! -s "$T/out" ] ||
    fail "a policy that is not in the log: $(cat "$T/out" "$T/err")"
says 0 "sound: the file" check "$T/run.db"
says 0 '"schema":' info "$T/run.db" --json
says 0 "0 rows went" trim "$T/run.db" --keep-age 1h
says 0 "bytes before" compact "$T/run.db"
says 0 "probe:" salvage "$T/copy.db" "$T/saved.db"
[ "$(rows "$T/saved.db" probe)" -eq "$(rows "$T/copy.db" probe)" ] || fail "salvage lost probes"
if [ "$(id -u)" -ne 0 ]; then # nothing is closed to root
    mkdir -m 555 "$T/closed"
    says 2 "Permission denied" snapshot "$T/copy.db" "$T/closed/x.db"
    says 2 "Permission denied" salvage "$T/copy.db" "$T/closed/x.db"
fi
ls "$T" | grep -qE 'partial|\.source' && fail "something is left over: $(ls "$T")"
# A page in its middle is gone: check says so with status 1, salvage counts and says where.
size=$(wc -c <"$T/run.db")
dd if=/dev/zero of="$T/run.db" bs=4096 seek=$((size / 8192)) count=3 conv=notrunc 2>/dev/null
says 1 ":" check "$T/run.db"
cp "$T/run.db" "$T/was.db"
says 2 "is damaged" compact "$T/run.db"
cmp "$T/run.db" "$T/was.db" || fail "a damaged log was written anew"
timeout 60 "$R" log salvage "$T/run.db" "$T/again.db" >"$T/out" 2>&1
[ $? -le 1 ] || fail "salvage of a damaged log: $(cat "$T/out")"
says 0 "rows" info "$T/again.db"
exit $failed
