# An engine that cannot be brought to the policy stays paused, and a frontend that is somebody
# else's still gives it samples, which it never answers. They are asked for again long before the
# bound of silence, and the other engine makes them.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/fleet.sh"

for i in 0 1; do
    engine "eng$i" 127.0.0.1 0 --faults --name eng-0$i || { fail "engine $i starts"; exit 1; }
done
"$R" frontend --port 0 --engine "$(address eng0)" --engine "$(address eng1)" >"$T/front.out" 2>&1 \
    </dev/null &
others="$others $!"
wait_for 60 listens front || { fail "the frontend starts"; exit 1; }
run held.db --rollout-batch-size 2 --n-samples-per-prompt 2 --rollout-max-response-len 8 \
    --rollout-external-engine-addrs "$(address eng0)" "$(address eng1)" \
    --rollout-url "http://$(address front)"
wait_for 60 serve 2 || fail "both engines serve"

"$H" post "$(address eng1)" /_fault '{"kind":"update","mode":"400"}' >/dev/null || fail "its loads fail"
fenced() { event "fenced: "; }
wait_for 90 fenced || fail "it is fenced after two updates that went back"
paused() { serve 1; }
wait_for 60 paused || fail "one engine serves"
asked() { event "samples without a first token are asked for again: the frontend may have given them to eng-01"; }
wait_for 60 asked || fail "what it holds is asked for again, and that is said"
goes_on "samples that the paused engine holds"
[ "$(number "select count(*) n from attempt where reason like '%no token for%' or reason like '%silent%'")" -eq 0 ] ||
    { fail "nobody waits for the bound of silence"; sql "select reason, count(*) from attempt group by reason"; }
[ "$(number "select count(*) n from attempt where fate=1 and versions like '%,%'")" -eq 0 ] ||
    fail "every accepted sample is of one policy"

"$H" post "$(address eng1)" /_fault '{"kind":"clear"}' >/dev/null || fail "it loads again"
"$R" ctl update eng-01 >/dev/null || fail "it is tried again at once"
wait_for 120 serve 2 || fail "it serves again once it holds the policy"
goes_on "both engines serve"
end_run 4
[ $failed -eq 0 ] && echo "held_engine: ok"
exit $failed
