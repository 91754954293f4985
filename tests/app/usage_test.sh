# Bad input is one clear sentence with status 2, before anything starts.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/script.sh"
tied=$ROLLTOP_SOURCE/tests/data/golden-qwen3/tied
printf '{"input":"a","label":"b"}\n{"input":"c","label":"d"}\n' >"$T/good.jsonl"
printf '{"input":"a"}\n\n\n\n\n\n{"input": \n' >"$T/bad.jsonl"

# says STATUS WORDS COMMAND…: it ends with that status and its one line holds the words.
says() {
    status=$1 words=$2
    shift 2
    timeout 120 "$R" "$@" >"$T/out" 2>"$T/err" </dev/null
    got=$?
    if [ $got -ne "$status" ] || ! cat "$T/out" "$T/err" | grep -qF -- "$words"; then
        fail "rolltop $*: status $got, wanted $status and \"$words\""
        cat "$T/err"
    elif [ "$status" -eq 2 ] && [ "$(wc -l <"$T/err")" -ne 1 ]; then
        fail "rolltop $*: more than one line"
    fi
}
run() { # the rest of a good command line; prompts and checkpoint come first
    status=$1 words=$2 model=$3 prompts=$4
    shift 4
    says "$status" "$words" run --hf-checkpoint "$model" --prompt-data "$prompts" \
        --rollout-batch-size 2 --num-rollout 1 --rollout-max-response-len 4 --headless "$@"
}
E="--local-engines 1"
G="--rm-type exact"
says 0 "the console on a log file" --help
says 0 "usage: rolltop run" run --help
says 0 "usage: rolltop demo" demo --help
says 0 "usage: rolltop ctl" ctl --help
says 0 "rolltop 0" --version
says 2 "did you mean run" rnu
says 2 "did you mean pause" ctl pasue
says 2 "--rollout-batch-size" run --rollout-batchsize 3
says 2 "--hf-checkpoint is needed" run
says 2 "did you mean --update-inflight" demo --update-inflght resume
says 2 "the demo settles --hf-checkpoint itself" demo --hf-checkpoint x
says 0 "--state-interval" demo --help
# What the demo is given is looked at before it makes a model, and a refused demo leaves nothing.
demo() {
    words=$1
    shift
    says 2 "$words" demo --headless --log "$T/demo.db" "$@"
    grep -q "made in" "$T/out" && fail "rolltop demo $*: made its model first"
    [ -e "$T/demo.db.d" ] && fail "rolltop demo $*: left something"
    return 0
}
demo "--alert-rules: $T/none.ini cannot be opened" --alert-rules "$T/none.ini"
printf '[alert eng_gone]\nafter = 1s\n' >"$T/alerts.ini"
demo "alerts.ini:1" --alert-rules "$T/alerts.ini"
demo "--disk-wait" --disk-wait soon
demo "--log-max-size" --log-max-size much
demo "none of auto, f32, bf16" --publish-dtype f8
demo "does not fit into the model's 64 positions" --rollout-max-response-len 100
demo "no prompt of" --rollout-max-prompt-len 2
demo "is no token of a vocabulary" --rollout-stop-token-ids 4000
demo "larger than the 256 samples" --global-batch-size 4000
demo "cannot be the name of a run" --run-id a/b
demo "is not a directory" --save "$T/good.jsonl/x"
demo "give --ref-load DIR" --use-kl-loss
demo "--trainer: there is no program $T/no-trainer" --trainer "$T/no-trainer"
demo "--trainer: there is no program $T" --trainer "$T"
demo "--engine-cmd: there is no program no-engine" --engine-cmd "no-engine --x"
says 2 "the log's directory $T/no does not exist" demo --log "$T/no/demo.db"
[ -e "$T/no" ] && fail "a refused demo made the directory of its log"
says 2 "rolltop run --resume" demo --log "$T/good.jsonl"
says 2 "no run is alive" ctl stop
for version in 3 v3; do # as tables show it, too
    says 2 "no run is alive" ctl update --to $version
done
for version in v 0 v0 -1 vv3 3x; do
    says 2 "--to wants a version, v12 or 12" ctl update --to=$version
    says 2 "--version wants a version, v12 or 12" policy verify --version=$version
done
says 2 "no run is alive"
says 0 "no run is alive" ls
for command in watch ls verify demo sim train engine frontend; do
    says 2 "unexpected word stray" $command stray
done
says 2 "replay wants one log file" replay
says 2 "attach wants one run" attach one two
says 2 "query wants a log file and a topic" query one
says 2 "query --sql wants one log file" query one two --sql "select 1"
says 2 "completion wants the name of one shell" completion
says 2 "there is no log" replay "$T/none.db"
says 2 "nearest" query "$T/none.db" stepz
says 2 "$T/none.db" query "$T/none.db" steps
says 2 "is not a database" query "$T/good.jsonl" steps
says 2 "--resume wants the log" run --resume
says 2 "$T/none.db" run --resume --log "$T/none.db"
run 2 "/nonexistent is not a directory" /nonexistent "$T/good.jsonl" $E $G
run 2 "bad.jsonl:7" "$tied" "$T/bad.jsonl" $E $G
run 2 "nothing.jsonl" "$tied" "$T/nothing.jsonl" $E $G
run 2 "exct" "$tied" "$T/good.jsonl" $E --rm-type exct
run 2 "--rm-type is needed" "$tied" "$T/good.jsonl" $E
run 2 "no engines are given" "$tied" "$T/good.jsonl" $G
run 2 "both as local ones" "$tied" "$T/good.jsonl" $E $G --rollout-external-engine-addrs h:1
run 2 "engine address" "$tied" "$T/good.jsonl" $G --rollout-external-engine-addrs h
run 2 "--rollout-stop has an empty string" "$tied" "$T/good.jsonl" $E $G --rollout-stop ""
run 2 "--sglang-router-port belong together" "$tied" "$T/good.jsonl" $G \
    --rollout-external-engine-addrs 127.0.0.1:1 --sglang-router-ip 127.0.0.1
run 2 "none are asked for" "$tied" "$T/good.jsonl" $G --engine-cmd sglang \
    --rollout-external-engine-addrs 127.0.0.1:1
run 2 "--engine-cmd is empty" "$tied" "$T/good.jsonl" $E $G --engine-cmd ""
run 2 "--sglang-port is set by the run itself" "$tied" "$T/good.jsonl" $E $G --sglang-port 3
run 2 "--sglang-api-key would show the key" "$tied" "$T/good.jsonl" $E $G --sglang-api-key k
echo key >"$T/key" && chmod 644 "$T/key"
SGLANG_API_KEY_FILE="$T/key"
export SGLANG_API_KEY_FILE
run 2 "can be read by others" "$tied" "$T/good.jsonl" $E $G
unset SGLANG_API_KEY_FILE
run 2 "--rollout-temperature must be > 0" "$tied" "$T/good.jsonl" $E $G --rollout-temperature 0
run 2 "--eval-interval is set" "$tied" "$T/good.jsonl" $E $G --eval-interval 1
run 2 "--save-interval is set" "$tied" "$T/good.jsonl" $E $G --save-interval 1
run 2 "ppo needs a critic" "$tied" "$T/good.jsonl" $E $G --advantage-estimator ppo
run 2 "no teacher" "$tied" "$T/good.jsonl" $E $G --use-opd --opd-type megatron
run 2 "--opd-type is sglang" "$tied" "$T/good.jsonl" $E $G --use-opd --opd-type sglang
run 2 "--opd-type is not given" "$tied" "$T/good.jsonl" $E $G --use-opd --opd-teacher-load "$tied"
run 2 "without --use-opd" "$tied" "$T/good.jsonl" $E $G --opd-teacher-load "$tied"
run 2 "gropo is none of" "$tied" "$T/good.jsonl" $E $G --advantage-estimator gropo
run 2 "larger than the 2 samples" "$tied" "$T/good.jsonl" $E $G --global-batch-size 4
run 2 "does not exist" "$tied" "$T/good.jsonl" $E $G --log /nonexistent/x.db
run 2 "is there already" "$tied" "$T/good.jsonl" $E $G --log "$T/good.jsonl"
cp -r "$tied" "$T/cut"
for f in "$T"/cut/*.safetensors; do
    size=$(wc -c <"$f")
    dd if="$f" of="$f.short" bs=1 count=0 seek=0 2>/dev/null
    head -c $((size / 2)) "$f" >"$f.short" && mv "$f.short" "$f"
done
run 2 "safetensors" "$T/cut" "$T/good.jsonl" $E $G
says 2 "safetensors" engine --model-path "$T/cut" --port 0
# A port in use: held by a synthetic engine.
"$R" engine --model-path "$tied" --synthetic --port 0 >"$T/held.out" 2>&1 </dev/null &
others=$!
wait_for 60 listens held || fail "an engine starts"
port=$(address held)
port=${port##*:}
says 2 "the port is in use" engine --model-path "$tied" --synthetic --port "$port"
says 2 "the port is in use" frontend --port "$port"
ls "$T" | grep -q '\.db' && fail "a refused run left a log"
exit $failed
