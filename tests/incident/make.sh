#!/bin/sh
# Records the incident in tests/data/incident.db.zst: make.sh ROLLTOP OUT.db.zst
#
# A real run of local engines: eng-02 slows down to a token a second, then to none, while it holds
# the last samples of a rollout; the fleet waits; an alert opens; an operator cordons and then
# restarts the engine; its samples are generated anew, it comes back with the policy, and the next
# ones go onto every engine. Takes two minutes.
# Wants curl, jq, sqlite3 and zstd. Each run gives another file: golden screens of the incident
# follow it (UPDATE=1 build/NAME/tests/tui_incident_test).
set -eu
rolltop=$(realpath "$1")
out=$(realpath -m "$2")
work=$(mktemp -d /tmp/rolltop-incident-XXXXXX)
XDG_STATE_HOME=$work XDG_RUNTIME_DIR=$work
export XDG_STATE_HOME XDG_RUNTIME_DIR
pid=
finish() {
    [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT
cd "$work" # names of files in the log are relative to here
"$rolltop" demo --headless --steps 1 --keep --log base.db >/dev/null || [ $? -eq 1 ] # one step is no aim reached
mv base.db.d/task task
"$rolltop" run --headless --name tail --run-id tail --log incident.db \
    --hf-checkpoint task/base --prompt-data task/train.jsonl --input-key input --label-key label \
    --rm-type digits --rollout-batch-size 12 --n-samples-per-prompt 4 --global-batch-size 48 \
    --rollout-max-response-len 50 --rollout-skip-special-tokens --num-rollout 12 --lr 2e-4 \
    --disable-grpo-std-normalization --rollout-shuffle --seed 1 --rollout-seed 1 \
    --local-engines 4 --engine-faults --sglang-server-concurrency 64 --publish-dtype f32 \
    >lines 2>&1 &
pid=$!

ask() { "$rolltop" query incident.db --json --sql "$1" 2>/dev/null; }
# until SECONDS SQL: the statement gives a row.
until_row() {
    n=$(($1 * 5))
    while [ -z "$(ask "$2")" ]; do
        n=$((n - 1))
        if [ $n -lt 0 ] || ! kill -0 "$pid" 2>/dev/null; then
            echo "never: $2" >&2
            cat lines >&2
            exit 1
        fi
        sleep 0.2
    done
}
fault() { # ADDRESS JSON
    curl -fsS -X POST -H 'content-type: application/json' -d "$2" "http://$1/_fault" >/dev/null
}
address() { ask "select address from engines where engine = '$1'" | jq -r .address; }

until_row 30 "select 1 from steps where step = 0"
for engine in eng-00 eng-01 eng-02 eng-03; do # a GPU's pace, and answers of unequal length
    fault "$(address $engine)" '{"kind":"slow","f":0.003}'
    fault "$(address $engine)" '{"kind":"nostop","p":0.08}'
done
until_row 120 "select 1 from steps where step = 7"
until_row 20 "select 1 from attempt where engine = 3 and step = 7"
fault "$(address eng-02)" '{"kind":"nostop","p":0.2}'
fault "$(address eng-02)" '{"kind":"slow","f":0.0001}'
echo "eng-02 is slow now"
until_row 90 "select 1 from incidents where class = 'TAIL' and severity = 'warn' and ended_us is null"
echo "the alert is open"
fault "$(address eng-02)" '{"kind":"freeze"}'
sleep 7
"$rolltop" ctl cordon eng-02 --reason "the others wait for it" >/dev/null
sleep 8
"$rolltop" ctl restart eng-02 --reason "holds the last samples, no token for 15 s" >/dev/null
echo "eng-02 is restarted"
until_row 60 "select 1 from commands where what = 'restart' and state = 'done'"
"$rolltop" ctl uncordon eng-02 --reason "as fast as the others again" >/dev/null
wait "$pid" && status=0 || status=$?
pid=
tail -n 4 lines
echo "status $status"
# The sample that the alert names has to be the one that stalled; chance may let it end before.
named=$(ask "select evidence from incidents where class = 'TAIL' and severity = 'warn'" |
    sed -n 's/.*sample 7\/\([0-9]*\) on eng-02.*/\1/p')
until_restart=$(ask "select 1 from attempt where sample_id = ${named:-0} and try = 2")
if [ -z "$until_restart" ]; then
    echo "the sample of the alert ended by itself; record again" >&2
    exit 1
fi
# Folders and the name of this machine are nobody's business.
sqlite3 incident.db "
    update run set host = 'node-1', argv_json = replace(argv_json, '$work/', ''),
        config_json = replace(config_json, '$work/', '');
    update policy set path = replace(path, '$work/', '');
    update step set trainer_state = replace(trainer_state, '$work/', '');
    vacuum into 'small.db'"
if grep -qaF "$work" small.db; then
    echo "the log still names $work" >&2
    exit 1
fi
zstd -q -19 --ultra -f small.db -o "$out"
ls -l small.db "$out"
