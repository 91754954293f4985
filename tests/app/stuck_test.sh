# An engine whose scheduler stands still in mid-rollout while its HTTP server is well: it is seen, gets
# no more work while another serves, serves again when it goes on; killed, what it held is generated
# elsewhere. No sample is lost.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/fleet.sh"

engine a 127.0.0.1 0 --faults || { fail "engine a starts"; exit 1; }
A=127.0.0.1:$port
engine b 127.0.0.1 0 --faults || { fail "engine b starts"; exit 1; }
B=127.0.0.1:$port b=$pid
fault() { "$H" post "$1" /_fault "$2" >/dev/null || fail "the fault $2 is taken"; }
for e in "$A" "$B"; do # each rollout takes some seconds
    fault "$e" '{"kind":"nostop"}'
    fault "$e" '{"kind":"slow","f":0.01}'
done
run stuck.db --rollout-external-engine-addrs "$A" "$B" --probe-stuck-ms 2000 \
    --rollout-batch-size 4 --n-samples-per-prompt 4 --rollout-max-response-len 48
generates() { status | grep -q '"phase":"generate"'; }
updates() { status | grep -q '"phase":"sync"'; }
freeze() { # in mid-rollout: an update that waits for it would be another test
    wait_for 60 updates
    wait_for 60 generates || fail "a rollout is under way"
    fault "$B" '{"kind":"freeze"}'
    wait_for 60 state "$B" stuck || fail "a stuck engine is seen"
    serves "$B" && fail "it gets no work"
}
freeze
wait_for 60 event "samples that it may have held are taken back" || fail "its samples are taken back"
fault "$B" '{"kind":"clear"}'
for e in "$A" "$B"; do
    fault "$e" '{"kind":"nostop"}'
    fault "$e" '{"kind":"slow","f":0.01}'
done
wait_for 60 serves "$B" || fail "it serves again"
goes_on "its recovery"
# All at once are rather this machine or the network: samples wait where they are, and go on.
wait_for 60 updates
wait_for 60 generates || fail "a rollout is under way"
ended() { number "select coalesce(sum(fate <> 1), 0) n from attempt where eval = 0"; }
before=$(ended)
for e in "$A" "$B"; do fault "$e" '{"kind":"freeze"}'; done
wait_for 60 event "look dead or stuck at once" || fail "all at once are seen"
for e in "$A" "$B"; do
    fault "$e" '{"kind":"clear"}'
    fault "$e" '{"kind":"nostop"}'
    fault "$e" '{"kind":"slow","f":0.01}'
done
goes_on "both stood still"
apart=$(number "select max(t_us) - min(t_us) n from (select t_us from engine_state where state =
    (select code from enumeration where kind='engine_state' and word='stuck')
    order by change_id desc limit 2)")
[ "$apart" -gt 900000 ] || [ "$(ended)" -eq "$before" ] || # else the first was alone for a while
    fail "no sample is taken back when all stand still at once"
freeze
kill -9 "$b"
goes_on "a stuck engine that is killed"
end_run 16
exit $failed
