# Checkpoints of --save, from which --load goes on. A resumed run whose log no longer holds what the
# steps after the trainer's state were trained on does these steps anew, with the same prompts. Parts
# that never come up end the run by name.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/fleet.sh"
S=$T/save
L=$T/save.db
small="--rollout-batch-size 4 --n-samples-per-prompt 4 --rollout-max-response-len 16
    --local-engines 1 --rollout-skip-special-tokens"
task="--hf-checkpoint $T/task/base --label-key label --rm-type digits --publish-dtype f32 --lr 1e-3"

# Longer prompts than 12 tokens are dropped.
printf '{"input":"rev 1234567890123456789=","label":"x"}\n' | cat - "$T/task/train.jsonl" >"$T/long.jsonl"
"$R" run --headless --log "$L" $task --prompt-data "$T/long.jsonl" $small --num-rollout 6 --save "$S" \
    --save-interval 2 --state-interval 3 --rollout-max-prompt-len 12 >"$T/out" 2>&1 </dev/null ||
    fail "six steps with checkpoints"
log=save.db
[ "$(steps)" -eq 6 ] || fail "six steps"
for step in 1 3 5; do
    [ -f "$S/iter_000000$step/model.safetensors" ] || fail "a checkpoint after step $step"
done
[ "$(cat "$S/latest_checkpointed_iteration.txt")" = 5 ] || fail "the newest checkpoint is named"
event "checkpoint $S/iter_0000001" || fail "a checkpoint is an event"
[ "$(number "select min(data_position) n from step where step = 0")" = 4 ] || fail "prompts are counted"

# The same optimizer state and weights go on from there.
"$R" run --headless --log "$T/load.db" $task $small --prompt-data "$T/task/train.jsonl" --num-rollout 1 --load "$S/iter_0000005" \
    >"$T/out" 2>&1 </dev/null || fail "a run from a checkpoint"

# Of the steps after the older state the log has lost the samples of one.
rm -r "$L.d/trainer/step-000005"
position=$(number "select data_position n from step where step = 2 and outcome = 'ok'")
"$H" sql "$L" "delete from attempt_data where attempt_id in (select attempt_id from attempt where step = 4)" ||
    fail "samples are lost"
"$R" run --headless --log "$L" --resume --num-rollout 7 >"$T/out" 2>&1 </dev/null || fail "it goes on"
event "steps 3 to 5 are done again: the state %step-000002 is older, and %" || fail "it says so"
[ "$(number "select count(*) n from step where outcome = 'ok' and step between 3 and 5")" = 6 ] ||
    fail "three steps are done again"
again="select data_position n from step where outcome = 'ok' and step = 3 order by ended_us desc limit 1"
[ "$(number "$again")" = $((position + 4)) ] || fail "with the same prompts"
[ "$(number "select max(step) n from step where outcome = 'ok'")" = 6 ] || fail "to the end"

# Nobody listens there.
log=never.db
"$R" run --headless --log "$T/never.db" $task --prompt-data "$T/task/train.jsonl" --rollout-batch-size 2 --num-rollout 1 \
    --rollout-max-response-len 4 --rollout-external-engine-addrs 127.0.0.1:1 --startup-timeout 2 \
    >"$T/out" 2>&1 </dev/null
[ $? -eq 3 ] || fail "a run whose engine never comes up ends with status 3"
grep -q "eng-00 did not come up for 2 s" "$T/out" || fail "it names the engine"
exit $failed
