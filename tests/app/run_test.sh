# The main job on this machine: the demo's run, parts killed under it, the core killed, resumed.
set -u
R=${ROLLTOP:?}
T=$(mktemp -d)
XDG_STATE_HOME=$T XDG_RUNTIME_DIR=$T
export XDG_STATE_HOME XDG_RUNTIME_DIR
failed=0
core=
trap '[ -n "$core" ] && kill -9 $core 2>/dev/null; rm -rf "$T"' EXIT
fail() { echo "FAILED: $*"; failed=1; }
sql() { "$R" query "$1" --json --sql "$2"; }
number() { sed -n "s/.*\"$1\":[ \t]*\(-\{0,1\}[0-9][0-9]*\).*/\1/p"; }
status() { "$R" ctl status --run "$1"; }
wait_for() { # SECONDS COMMAND…
    left=$(($1 * 15))
    shift
    while ! "$@" >/dev/null 2>&1; do
        left=$((left - 1))
        [ $left -le 0 ] && return 1
        sleep 0.2
    done
}

# Two steps, not learned within them: status 1, one line a step.
"$R" demo --headless --steps 2 --engines 2 --keep --log "$T/a.db" >"$T/out" 2>&1 </dev/null
[ $? -eq 1 ] || { fail "a demo of two steps ends with status 1"; cat "$T/out"; exit 1; }
[ "$(grep -c '^step ' "$T/out")" -eq 2 ] || fail "two lines of steps"
[ "$("$R" query "$T/a.db" steps --json | grep -c '"outcome":"ok"')" -eq 2 ] || fail "two steps in the log"
"$R" query "$T/a.db" policies --json | grep -q '"version":3' || fail "policy 3 in the log"
sql "$T/a.db" "select count(*) n from step where step=-1 and eval_reward_mean is not null" |
    grep -q '"n":1' || fail "an eval before training"

# Without names the log has the run's, although making the task takes a second in between.
"$R" demo --headless --steps 1 --engines 1 >"$T/named" 2>&1 </dev/null
run=$(sed -n 's/^run \([^ ]*\)  log .*/\1/p' "$T/named")
[ -n "$run" ] && [ -f "$T/rolltop/$run.db" ] || { fail "$T/rolltop/$run.db"; cat "$T/named"; }

# A standard stream that is closed is not the number of the next file opened.
"$R" query "$T/a.db" steps >&- 2>"$T/closed"
[ $? -eq 3 ] || fail "a closed stdout is an error"
grep -q "cannot write the answer: Bad file descriptor" "$T/closed" || fail "a closed stdout is said"

# What only shows with a tokenizer and weights is refused before anything starts, too.
B=$T/a.db.d/task
refuse() { # WORDS extra flags
    words=$1
    shift
    "$R" run --headless --log "$T/no.db" --hf-checkpoint "$B/base" --rollout-batch-size 2 \
        --num-rollout 1 --local-engines 1 "$@" >"$T/no.out" 2>&1 </dev/null
    [ $? -eq 2 ] || fail "status 2: $*"
    grep -qF -- "$words" "$T/no.out" || { fail "it says \"$words\""; cat "$T/no.out"; }
    [ "$(wc -l <"$T/no.out")" -eq 1 ] || fail "one line: $*"
    ls "$T" | grep -q '^no\.db' && fail "a refused run leaves something: $*"
    return 0
}
data="--prompt-data $B/train.jsonl --label-key label --rm-type digits"
short="--rollout-max-response-len 16"
refuse "does not fit into the model's" $data --rollout-max-response-len 100000
refuse "is short enough" $short $data --rollout-max-prompt-len 1
refuse "has 65 strings" $short $data --rollout-stop $(seq 100 164)
echo '{"input":"~~~","label":"1"}' >"$T/none.jsonl"
refuse "gives no token" $short --prompt-data "$T/none.jsonl" --label-key label --rm-type digits
(
    ulimit -n 96
    refuse "files may be open here" $short $data
    exit $failed
) || failed=1
refuse "is no token of a vocabulary of" $short $data --rollout-stop-token-ids 99999999
refuse "is not a directory" $short $data --save "$B/train.jsonl/x" --save-interval 1
printf '{"input":"rev 12=","label":"21"}\n{"input":"rev 10=","label":0}\n' >"$T/zero.jsonl"
refuse "prompt 1 of $T/zero.jsonl cannot be scored: the f1 reward needs a label that is a string" \
    $short --prompt-data "$T/zero.jsonl" --label-key label --rm-type f1
refuse "cannot be scored: the exact reward needs a label" $short --rm-type exact \
    --prompt-data "$B/train.jsonl"
# The name of a run goes into file names, requests and onto terminals.
for name in "$(printf 'x\033[31m')" ../x .x '' 'a b' 'a"b' "$(printf '%049d' 7)"; do
    refuse "cannot be the name of a run" $short $data --run-id "$name"
    timeout 30 "$R" watch --headless --rollout-external-engine-addrs 127.0.0.1:1 --run-id "$name" \
        >"$T/no.out" 2>&1 </dev/null
    [ $? -eq 2 ] && grep -q "cannot be the name of a run" "$T/no.out" ||
        fail "watch --run-id $name: $(cat "$T/no.out")"
done
cp -r "$B/base" "$T/cut"
head -c 20000 "$B/base/model.safetensors" >"$T/cut/model.safetensors"
refuse "cut/model.safetensors" $short $data --load "$T/cut"
refuse "models of different shape" $short $data --load "$ROLLTOP_SOURCE/tests/data/golden-qwen3/untied"
refuse "cut/model.safetensors" $short $data --use-kl-loss --ref-load "$T/cut"

# A bound on the size of files is a full disk, not a death by signal.
(
    ulimit -f 500
    "$R" run --headless --log "$T/small.db" --hf-checkpoint "$B/base" --prompt-data "$B/train.jsonl" \
        --label-key label --rm-type digits --rollout-batch-size 2 --num-rollout 1 --local-engines 1 \
        --rollout-max-response-len 16 >"$T/small.out" 2>&1 </dev/null
    [ $? -eq 3 ]
) || { fail "a run past the bound of file sizes ends with status 3"; cat "$T/small.out"; }
grep -q "File too large" "$T/small.out" || fail "it says what was too large"

# A run on that checkpoint; every part is killed once.
start() { # extra flags
    "$R" run --headless --log "$T/b.db" --run-id killed "$@" >>"$T/out2" 2>&1 </dev/null &
    core=$!
}
start --hf-checkpoint "$B/base" --prompt-data "$B/train.jsonl" --label-key label --rm-type digits \
    --rollout-batch-size 16 --n-samples-per-prompt 8 --rollout-max-response-len 16 \
    --num-rollout 100000 --lr 1e-4 --local-engines 2 --publish-dtype f32 \
    --rollout-skip-special-tokens
wait_for 60 grep -q '^step 1 ' "$T/out2" || { fail "the run starts"; cat "$T/out2"; exit 1; }
up() { # every engine serves and both other parts are there
    status killed >"$T/status" && [ "$(grep -c '"serves":.*true' "$T/status")" -eq 2 ] &&
        [ "$(number trainer_pid <"$T/status")" -gt 1 ] && [ "$(number frontend_pid <"$T/status")" -gt 1 ]
}
goes_on() {
    step=$(status killed | number step | head -1)
    wait_for 30 sh -c "[ \$('$R' ctl status --run killed | sed -n 's/.*\"step\":[^0-9]*\([0-9]*\).*/\1/p' | head -1) -gt $((step + 1)) ]"
}
for part in engine trainer frontend; do
    wait_for 30 up || fail "all parts are up before the $part is killed"
    case $part in
    engine) victim=$(grep '"pid"' "$T/status" | number pid | sed -n 3p) ;;
    *) victim=$(number ${part}_pid <"$T/status") ;;
    esac
    kill -9 "$victim" || fail "the $part (pid $victim) could be killed"
    sleep 1
    wait_for 30 up || fail "the $part comes back"
    goes_on || fail "steps go on after the $part was killed"
done
for class in ENGINE-DEAD TRAINER-DEAD ROUTER-DEAD; do
    sql "$T/b.db" "select count(*) n from incident where class='$class' and ended_us is not null" |
        grep -q '"n":[1-9]' || fail "$class was opened and closed"
done

# Parts that live and do nothing (held by a signal): a trainer is named, the others start again.
opened() { # CLASS COUNT
    sql "$T/b.db" "select count(*) n from incident where class='$1'" | grep -q "\"n\":$2"
}
wait_for 30 up || fail "all parts are up before one is held"
victim=$(number trainer_pid <"$T/status")
kill -STOP "$victim"
wait_for 4 opened TRAINER-DEAD 2 || fail "a trainer held by a signal is named"
kill -CONT "$victim"
goes_on || fail "steps go on after the trainer goes on"
kill -STOP "$(number frontend_pid <"$T/status")" "$(grep '"pid"' "$T/status" | number pid | sed -n 3p)"
sleep 3
goes_on || fail "a frontend and an engine that are held are started again"
wait_for 30 up || fail "they are up again"
sql "$T/b.db" "select count(*) n from event where text like '%lives and has not answered%'" |
    grep -q '"n":2' || fail "it says that they were ended"

# Commands.
"$R" ctl pause --run killed --reason test >/dev/null || fail "pause"
wait_for 20 sh -c "'$R' ctl status --run killed | grep -q '\"phase\":.*pause'" || fail "phase pause"
"$R" ctl resume --run killed >/dev/null || fail "resume"
"$R" ctl update --run killed >/dev/null || fail "update"
"$R" ctl restart eng-00 --run killed >/dev/null || fail "restart"
"$R" ctl restart eng-77 --run killed >/dev/null 2>&1 && fail "an unknown engine is refused"
for verb in stop stop-now; do # of one engine they would end the whole run
    "$R" ctl $verb eng-01 --run killed 2>&1 | grep -q "engine remove" || fail "$verb eng-01 is refused"
done
# A note changes nothing: a row among the commands, and an event.
"$R" ctl note "eng-00 is loud" --run killed | grep -q noted || fail "note"
kept() { sql "$T/b.db" "select count(*) n from $1" | grep -q '"n":1'; }
wait_for 60 kept "command where what='note' and state='done' and reason='eng-00 is loud' and
    who like '%(pid %'" || fail "a note is a command"
wait_for 60 kept "event where text like 'note by %: eng-00 is loud'" || fail "a note is an event"
"$R" ctl note eng-00 is loud --run killed 2>&1 | grep -q "in quotes" || fail "a note is one word"
"$R" ctl note x --reason y --run killed 2>&1 | grep -q "other commands" || fail "a note has no reason"
"$R" ctl note "   " --run killed 2>&1 | grep -q "this one has 0" || fail "blanks are no words"
"$R" ctl note "$(printf '%0201d' 7)" --run killed 2>&1 | grep -q "this one has 201" ||
    fail "a long note is refused"
# A restart that somebody asked for is no incident; a part that ends once more on its way back is.
alarms() { # since the incident $before
    sql "$T/b.db" "select count(*) n from incident where incident_id > $before and class in
        ('ENGINE-DEAD', 'TRAINER-DEAD', 'ROUTER-DEAD', 'HEALTH-LIES')" | number n
}
alarmed() { [ "$(alarms)" -gt 0 ]; }
has_pid() { # PART OLD: another process of it is there
    pid=$(status killed | number "$1_pid")
    [ "${pid:-0}" -gt 1 ] && [ "$pid" != "$2" ]
}
goes_on || fail "steps go on after the commands so far"
wait_for 60 up || fail "all parts are up before they are restarted"
before=$(sql "$T/b.db" "select coalesce(max(incident_id), 0) n from incident" | number n)
for part in eng-00 trainer frontend; do
    "$R" ctl restart $part --run killed --reason calm >/dev/null || fail "restart $part"
    case $part in
    eng-00) wait_for 60 kept "command where answer='verified; serves again' and state='done' and
        command_id=(select max(command_id) from command)" ;;
    *) wait_for 60 has_pid $part "$(number ${part}_pid <"$T/status")" ;;
    esac || fail "$part comes back"
    wait_for 60 up || fail "all parts are up after the restart of $part"
    goes_on || fail "steps go on after the restart of $part"
    [ "$(alarms)" -eq 0 ] || fail "the restart of $part is no incident"
done
"$R" ctl restart trainer --run killed >/dev/null || fail "restart trainer"
wait_for 60 has_pid trainer "$(number trainer_pid <"$T/status")" || fail "the trainer comes back"
kill -9 "$pid"
wait_for 60 alarmed || fail "a trainer that ends on its way back is an incident"
wait_for 60 up || fail "the trainer comes back once more"
# The first of two restarts of the trainer does not stay open: the second takes its place.
"$R" ctl restart trainer --run killed --reason one >/dev/null || fail "restart trainer"
"$R" ctl restart trainer --run killed --reason two >/dev/null || fail "restart trainer again"
wait_for 30 up || fail "the trainer comes back"
for answer in "a later command took its place:failed" "up again from its last state:done"; do
    wait_for 30 sh -c "'$R' query '$T/b.db' --json --sql \"select count(*) n from command where
        answer='${answer%%:*}' and state='${answer##*:}'\" | grep -q '\"n\":[1-9]'" ||
        fail "a command ends with ${answer%%:*}"
done
sleep 1
wait_for 30 up || fail "eng-00 comes back"
# A restart is done when the engine is up again, also when it is still kept from work, and that is said.
"$R" ctl cordon eng-00 --run killed >/dev/null || fail "cordon"
"$R" ctl restart eng-00 --run killed >/dev/null || fail "restart of a cordoned engine"
wait_for 60 sh -c "'$R' query '$T/b.db' --json --sql \"select count(*) n from command where
    answer='verified; still cordoned: takes nothing new' and state='done'\" | grep -q '\"n\":1'" ||
    fail "the restart of a cordoned engine is done"
"$R" ctl uncordon eng-00 --run killed >/dev/null || fail "uncordon"
goes_on || fail "steps go on after the commands"

# The same without a terminal, of the run that is alive.
"$R" snapshot --run killed --json | grep -q '"live":true' || fail "snapshot of a live run"
[ "$("$R" top --batch --run killed --json -n 2 -d 0.5 | wc -l)" -eq 2 ] || fail "top of a live run"
"$R" events --run killed -n 500 | grep -q "restart eng-00" || fail "events of a live run"

# The core is killed: its children end, and the run goes on from its last durable step.
children=$(cat /proc/$core/task/*/children) # ps is no part of the base image
[ "$(echo "$children" | wc -w)" -ge 4 ] || fail "the core has engines, frontend and trainer: $children"
kill -9 $core
gone() { for c in $children; do kill -0 "$c" 2>/dev/null && return 1; done; return 0; }
wait_for 5 gone || fail "children outlive the core"
mkdir "$T/b.db.d/policies/v999999.tmp-1" "$T/b.db.d/trainer/step-999999.old-1" # half written
last=$(sql "$T/b.db" "select max(step) n from step where outcome='ok'" | number n)
"$R" run --resume --log "$T/b.db" --headless --num-rollout $((last + 3)) >"$T/out3" 2>&1 </dev/null
[ $? -eq 0 ] || { fail "the resumed run ends well"; cat "$T/out3"; }
core=
ls -d "$T"/b.db.d/*/*.tmp-* "$T"/b.db.d/*/*.old-* >/dev/null 2>&1 &&
    fail "what a killed trainer left half written goes away"
grep -q "^step $((last + 1)) " "$T/out3" || fail "it goes on with step $((last + 1))"
sql "$T/b.db" "select count(*) n from (select step from step where outcome='ok' group by step having count(*)>1)" |
    grep -q '"n":0' || fail "no step counts twice"
sql "$T/b.db" "select count(*) n from (select sample_id from attempt where fate=1 group by sample_id having count(*)>1)" |
    grep -q '"n":0' || fail "no sample is accepted twice"
sql "$T/b.db" "select count(*) n from step s where outcome='ok' and samples<>(select count(*) from attempt a where a.step=s.step and a.eval=0 and a.fate=1 and a.started_us>=s.started_us and a.started_us<=s.ended_us)" |
    grep -q '"n":0' || fail "every step has its samples"
sql "$T/b.db" "select count(*) n from attempt a join step s on s.step=a.step and a.started_us between s.started_us and s.ended_us where a.fate=1 and a.eval=0 and a.versions<>cast(s.policy_version as text)" |
    grep -q '"n":0' || fail "every sample is of its step's policy"

# Ctrl-C once stops cleanly.
"$R" run --headless --resume --log "$T/b.db" --num-rollout 100000 >"$T/out4" 2>&1 </dev/null &
core=$!
wait_for 60 grep -q '^step ' "$T/out4" || fail "it resumes again"
kill -INT $core
wait $core
[ $? -eq 0 ] || fail "one interrupt ends it cleanly"
core=
grep -q "stopped by the operator" "$T/out4" || fail "it says why it ended"
sql "$T/b.db" "select end_how from session order by session_id desc limit 1" |
    grep -q "stopped by the operator" || fail "the log says why it ended"

# Twice ends it at once.
"$R" run --headless --resume --log "$T/b.db" --num-rollout 100000 >"$T/out5" 2>&1 </dev/null &
core=$!
wait_for 60 grep -q '^step ' "$T/out5" || fail "it resumes once more"
"$R" ctl pause --run killed >/dev/null
kill -INT $core
sleep 0.4
kill -INT $core 2>/dev/null
wait $core
core=
grep -q "stopped" "$T/out5" || fail "it says that it was stopped"

# A log that cannot be written holds the run; two interrupts end it all the same.
if command -v prlimit >/dev/null 2>&1; then
    "$R" run --headless --resume --log "$T/b.db" --num-rollout 100000 >"$T/out6" 2>&1 </dev/null &
    core=$!
    wait_for 60 grep -q '^step ' "$T/out6" || fail "it resumes a third time"
    prlimit --pid $core --fsize=4096
    wait_for 20 grep -q "the log is not recording" "$T/out6" || fail "it says that it does not record"
    kill -INT $core
    wait_for 5 grep -q "interrupt again" "$T/out6" || fail "it says what it waits for"
    sleep 0.4
    kill -INT $core 2>/dev/null
    ended() { ! grep -q '^State:.[^Z]' /proc/$core/status; } # gone, or waits for its parent
    wait_for 15 ended || { fail "two interrupts end a run whose log is full"; kill -9 $core; }
    core=
fi
"$R" run --headless --log "$T/no.db" --hf-checkpoint "$B/base" $data $short --rollout-batch-size 2 \
    --num-rollout 1 --rollout-external-engine-addrs 127.0.0.1:1 \
    --rollout-url http://name:word@127.0.0.1:1 >"$T/no.out" 2>&1 </dev/null
[ $? -eq 2 ] || fail "a password in a URL is refused"
grep -q "user or password" "$T/no.out" || fail "it says that the URL has a password"
grep -q "word@" "$T/no.out" && fail "the password is not repeated"
exit $failed
