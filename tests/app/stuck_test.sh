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
slow() { # each rollout takes some seconds
    for e in "$A" "$B"; do
        fault "$e" '{"kind":"nostop"}'
        fault "$e" '{"kind":"slow","f":0.01}'
    done
}
well() {
    for e in "$A" "$B"; do
        fault "$e" '{"kind":"clear"}'
    done
    slow
}
slow
run stuck.db --rollout-external-engine-addrs "$A" "$B" --probe-stuck-ms 2000 \
    --rollout-batch-size 4 --n-samples-per-prompt 4 --rollout-max-response-len 48
holds() { # ENGINES…: each has samples
    for e in "$@"; do
        "$H" get "$e" /v1/loads | grep -q '"num_running_reqs": *[1-9]' || return 1
    done
}
stand_still() { # ENGINES…: in mid-rollout, an update that waits for them would be another test
    tries=0
    while [ $tries -lt 30 ]; do
        tries=$((tries + 1))
        from=$(steps)
        wait_for 60 more_steps "$from" || fail "steps go on before engines stand still"
        wait_for 60 holds "$@" || fail "a rollout is under way"
        for e in "$@"; do
            fault "$e" '{"kind":"freeze"}'
        done
        holds "$@" && phase_is generate && return # what they hold now they hold for good
        well
    done
    fail "engines stand still in mid-rollout"
}
freeze() {
    stand_still "$B"
    wait_for 60 state "$B" stuck || fail "a stuck engine is seen"
    serves "$B" && fail "it gets no work"
}
freeze
wait_for 60 event "samples that it may have held are taken back" || fail "its samples are taken back"
well
wait_for 60 serves "$B" || fail "it serves again"
goes_on "its recovery"
# All at once are rather this machine or the network: samples wait where they are, and go on.
ended() { number "select count(*) n from attempt where fate <> 1 and ended_us is not null"; }
before=$(ended)
stand_still "$A" "$B"
wait_for 60 event "look dead or stuck at once" || fail "all at once are seen"
well
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
