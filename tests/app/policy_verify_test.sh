# `rolltop policy verify`: on a live run while policies change, and on engines by their addresses,
# sound ones and one that holds something else. It changes nothing.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/fleet.sh"

"$R" policy verify >"$T/o" 2>&1
[ $? -eq 2 ] || fail "without a run it is a mistake of use"
"$R" policy verify "$T" >"$T/o" 2>&1
[ $? -eq 2 ] && grep -q "rollout-external-engine-addrs" "$T/o" || { fail "a directory wants addresses"; cat "$T/o"; }

small="--rollout-batch-size 8 --n-samples-per-prompt 4 --rollout-max-response-len 16"
run look.db $small --local-engines 2 --run-id look
wait_for 90 beyond 2 || { fail "the run commits policies"; exit 1; }

# While policies change each moment: asked again until the answers are of one policy.
two() { "$R" policy verify --run look >"$T/o" 2>"$T/e" && grep -q "^2 of 2 engines that serve hold v" "$T/o"; }
wait_for 90 two || { fail "both engines hold the policy"; cat "$T/o" "$T/e"; }
[ "$(grep -c " holds  *v[0-9]" "$T/o")" -eq 2 ] || { fail "a row for each engine"; cat "$T/o"; }
grep -q "the policy's own forward pass" "$T/o" || fail "the trainer's word is compared"
json() { "$R" policy verify --run look --json >"$T/j" 2>&1 && grep -q '"ok":true.*"holds":true.*"canary_off":[0-9]' "$T/j"; }
wait_for 90 json || { fail "as JSON"; cat "$T/j"; }
policy=$(committed)
wait_for 60 beyond "$policy" || fail "the run goes on after it"
end_run 32
V=$(ls -d "$T"/look.db.d/policies/v?????? | tail -1) # not what the trainer was writing

# Engines by their addresses: the first two hold the policy, the third does not.
model=$V
engine one 127.0.0.1 0 || { fail "an engine starts"; exit 1; }
one=127.0.0.1:$port
engine two 127.0.0.1 0 || { fail "an engine starts"; exit 1; }
two=127.0.0.1:$port
model=$T/task/base
engine odd 127.0.0.1 0 || { fail "an engine starts"; exit 1; }
odd=127.0.0.1:$port
sound() { "$R" policy verify "$V" --rollout-external-engine-addrs $one $two >"$T/o" 2>&1; }
wait_for 60 sound || { fail "sound engines hold the artifact"; cat "$T/o"; }
"$R" policy verify "$V" --rollout-external-engine-addrs $one $two $odd >"$T/o" 2>&1
[ $? -eq 1 ] || fail "status 1 where an engine holds something else"
grep -q "^eng-02 .* NO .*its checksum is .*, the policy's digest" "$T/o" || { fail "it is named"; cat "$T/o"; }
[ "$(grep -c " holds  *v\{0,1\}" "$T/o")" -ge 2 ] || { fail "the others hold it"; cat "$T/o"; }
"$R" policy verify --rollout-external-engine-addrs $one $two $odd >"$T/o" 2>&1
[ $? -eq 1 ] || { fail "status 1 without an artifact too"; cat "$T/o"; }
"$R" policy verify "$V" --version 77 --rollout-external-engine-addrs $one >"$T/o" 2>&1
[ $? -eq 1 ] && grep -q "not 77" "$T/o" || { fail "another version than named"; cat "$T/o"; }
"$R" policy verify "$V" --rollout-external-engine-addrs $one 127.0.0.1:1 >"$T/o" 2>&1
[ $? -eq 1 ] && grep -q "^eng-01 .* NO " "$T/o" || { fail "nobody listens there"; cat "$T/o"; }
"$R" policy verify "$T/none" --rollout-external-engine-addrs $one >"$T/o" 2>&1
[ $? -eq 2 ] && grep -q "is not a directory" "$T/o" || { fail "no such artifact"; cat "$T/o"; }
[ $failed -eq 0 ] && echo "policy verify: ok"
exit $failed
