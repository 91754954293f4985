# Where engines are learnt of, live, with real processes and a DNS server of the test's own: A, AAAA
# and SRV records that change, names that cannot be resolved for a while, the list of a frontend that
# somebody else runs, and another process behind an entry that such a frontend keeps. Samples are
# made all the while, and each step has all of its.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/fleet.sh"
zone() { # LINES…: what the DNS server says from now on
    for line in "$@"; do
        echo "$line"
    done >"$T/zone.new"
    mv "$T/zone.new" "$T/zone"
}
: >"$T/zone"
"$H" dns "$T/zone" >"$T/dns.port" &
others="$others $!"
wait_for 60 test -s "$T/dns.port" || { fail "the DNS server starts"; exit 1; }
DNS=127.0.0.1:$(cat "$T/dns.port")

# A and AAAA records of one name: engines on several addresses of this machine, one port.
A=127.2.$own B=127.3.$own
engine a "$A" 0 || { fail "engine a starts"; cat "$T/a.out"; exit 1; }
P=$port
engine b "$B" "$P" || { fail "engine b starts"; cat "$T/b.out"; exit 1; }
zone "A engines.test $A"
small="--rollout-batch-size 8 --n-samples-per-prompt 4 --rollout-max-response-len 16"
run names.db $small --engines-dns "engines.test:$P" --engines-dns-server "$DNS"
zone "A engines.test $A" "A engines.test $B"
wait_for 60 serves "$B:$P" || fail "an address that the name gains"
wait_for 60 event 'listed by DNS' || fail "its event"
if engine v6 ::1 "$P"; then
    zone "A engines.test $A" "A engines.test $B" "AAAA engines.test ::1"
    wait_for 60 serves "[[]::1]:$P" || fail "an address of IPv6"
else
    echo "no IPv6 here: AAAA records are not tried"
fi
zone FAIL
wait_for 60 event 'engines known so far stay' || fail "names that cannot be resolved"
goes_on "a resolver that fails"
wait_for 60 serves "$B:$P" || fail "the engines stay meanwhile"
event 'no longer listed by DNS' && fail "nor does one leave"
zone "A engines.test $B"
wait_for 60 state "$A:$P" gone || fail "an address that the name loses"
wait_for 60 event 'no longer listed by DNS' || fail "its event"
goes_on "an address that is gone"
end_run 32

# SRV: names and ports, one replaced by another.
E=127.1.$own
engine c "$E" 0 || { fail "engine c starts"; exit 1; }
C=$port c=$pid
log=srv.db
"$R" watch --headless --engines-dns _http._tcp.engines.test --engines-dns-server "$DNS" \
    --discover-interval 1 --run-id srv --log "$T/srv.db" >"$T/watch" 2>&1 </dev/null &
watcher=$!
others="$others $watcher"
zone "SRV _http._tcp.engines.test $P $B"
wait_for 60 grep -q "answers at $B:$P" "$T/watch" || { fail "SRV"; cat "$T/watch"; }
zone "SRV _http._tcp.engines.test $C $E"
wait_for 60 grep -q "answers at $E:$C" "$T/watch" || { fail "SRV, another"; cat "$T/watch"; }
wait_for 60 grep -q 'gone: no longer listed by DNS' "$T/watch" || { fail "SRV, gone"; cat "$T/watch"; }
kill -INT "$watcher"
wait "$watcher"

# The list of a frontend that is not ours; and another process behind one of its entries, which it
# keeps as it was.
engine d "$E" 0 || { fail "engine d starts"; exit 1; }
D=$port d=$pid
"$R" frontend --port 0 --engine "$E:$C" >"$T/f.out" 2>&1 </dev/null &
others="$others $!"
wait_for 60 grep -q 'listening on http://' "$T/f.out" || { fail "the frontend starts"; exit 1; }
F=$(sed -n 's/.*listening on http:\/\/\([0-9.:]*\).*/\1/p' "$T/f.out" | head -1)
run front.db $small --rollout-url "http://$F" --engines-from-frontend 0
"$H" post "$F" /_workers "{\"add\":\"$E:$D\"}" >/dev/null ||
    fail "the frontend takes an engine"
wait_for 60 serves "$E:$D" || fail "an engine that the frontend gains"
wait_for 60 event "listed by the frontend" || fail "its event"
end_part "$d" || fail "engine d is there"
wait_for 60 state "$E:$D" dead || fail "its loss is seen"
goes_on "losing it"
engine d2 "$E" "$D" || { fail "another process at the same place"; exit 1; }
wait_for 60 serves "$E:$D" || fail "another process behind a kept entry serves"
goes_on "replacing it"
"$H" post "$F" /_workers "{\"remove\":\"$E:$D\"}" >/dev/null ||
    fail "the frontend drops an engine"
wait_for 60 state "$E:$D" gone || fail "an engine that the frontend loses"
goes_on "dropping it"
end_part "$c" || fail "engine c is there" # the only one: nobody can be served until another process stands there
wait_for 60 state "$E:$C" dead || fail "the loss of the only engine is seen"
engine c2 "$E" "$C" || { fail "another process at its place"; exit 1; }
wait_for 60 serves "$E:$C" || fail "it serves"
goes_on "losing the only engine"
end_run 32

exit $failed
