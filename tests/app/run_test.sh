# The main job on this machine: the demo's run, parts killed under it, the core killed, resumed.
set -u
R=${ROLLTOP:?}
. "$(dirname "$0")/../lib/fleet.sh"

# Two steps, not learned within them: status 1, one line a step.
log=two.db
"$R" demo --headless --steps 2 --engines 2 --keep --log "$T/two.db" >"$T/out" 2>&1 </dev/null
[ $? -eq 1 ] || { fail "a demo of two steps ends with status 1"; exit 1; }
[ "$(grep -c '^step ' "$T/out")" -eq 2 ] || fail "two lines of steps"
[ "$("$R" query "$T/two.db" steps --json | grep -c '"outcome":"ok"')" -eq 2 ] || fail "two steps in the log"
"$R" query "$T/two.db" policies --json | grep -q '"version":3' || fail "policy 3 in the log"
[ "$(number "select count(*) n from step where step=-1 and eval_reward_mean is not null")" = 1 ] ||
    fail "an eval before training"

# Without names the log has the run's, although making the task takes a second in between.
"$R" demo --headless --steps 1 --engines 1 >"$T/named" 2>&1 </dev/null
run=$(sed -n 's/^run \([^ ]*\)  log .*/\1/p' "$T/named")
[ -n "$run" ] && [ -f "$T/rolltop/$run.db" ] || { fail "$T/rolltop/$run.db"; cat "$T/named"; }

# A standard stream that is closed is not the number of the next file opened.
"$R" query "$T/two.db" steps >&- 2>"$T/closed"
[ $? -eq 3 ] || fail "a closed stdout is an error"
grep -q "cannot write the answer: Bad file descriptor" "$T/closed" || fail "a closed stdout is said"

# What only shows with a tokenizer and weights is refused before anything starts, too.
B=$T/task
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

# A bound on the size of files is a full disk, not a death by signal: the run is held, and says why.
log=small.db
(
    ulimit -f 1000
    exec "$R" run --headless --log "$T/small.db" --hf-checkpoint "$B/base" $data $short \
        --rollout-batch-size 2 --num-rollout 1 --local-engines 1 >"$T/out" 2>&1 </dev/null
) &
core=$!
wait_for 60 event "File too large" || fail "it says what was too large"
"$R" ctl stop >/dev/null || fail "a run that is held is stopped"
wait $core
[ $? -le 3 ] || fail "a run past the bound of file sizes ends by itself"
core=

# A run on that checkpoint; every part is killed once.
run killed.db --rollout-batch-size 16 --n-samples-per-prompt 8 --rollout-max-response-len 16 \
    --local-engines 2 --run-id killed
pid_of() { # PART: 0 while there is none
    case $1 in
    eng-*) engine_pid "$1" ;;
    *) of_status "$1_pid" ;;
    esac
}
up() { serve 2 && [ "$(pid_of trainer)" -gt 1 ] && [ "$(pid_of frontend)" -gt 1 ]; }
another() { up && [ "$(pid_of "$1")" -ne "$2" ]; } # PART PID: another process than that one
happened() { # COUNT TABLE WHERE…: that many rows, or more
    [ "$(number "select count(*) n from $2")" -ge "$1" ]
}
for part in eng-01 trainer frontend; do
    wait_for 60 up || fail "all parts are up before the $part is killed"
    victim=$(pid_of $part)
    kill -9 "$victim" || fail "the $part (pid $victim) could be killed"
    wait_for 60 another $part "$victim" || fail "the $part comes back"
    goes_on "the $part was killed"
done
for class in ENGINE-DEAD TRAINER-DEAD ROUTER-DEAD; do
    wait_for 60 happened 1 "incident where class='$class' and ended_us is not null" ||
        fail "$class was opened and closed"
done

# Parts that live and do nothing (held by a signal): a trainer is named, the others start again.
wait_for 60 up || fail "all parts are up before one is held"
victim=$(pid_of trainer)
dead=$(number "select count(*) n from incident where class='TRAINER-DEAD'")
kill -STOP "$victim"
wait_for 60 happened $((dead + 1)) "incident where class='TRAINER-DEAD'" ||
    fail "a trainer held by a signal is named"
kill -CONT "$victim"
goes_on "the trainer goes on"
wait_for 60 up || fail "all parts are up before two are held"
router=$(pid_of frontend) victim=$(pid_of eng-01)
hung=$(number "select count(*) n from event where text like '%lives and has not answered%'")
kill -STOP "$router" "$victim"
wait_for 60 happened $((hung + 2)) "event where text like '%lives and has not answered%'" ||
    fail "it says that they were ended"
wait_for 60 another frontend "$router" || fail "a frontend that is held is started again"
wait_for 60 another eng-01 "$victim" || fail "an engine that is held is started again"
goes_on "a frontend and an engine were held"

# Commands.
"$R" ctl pause --run killed --reason test >/dev/null || fail "pause"
wait_for 60 phase_is pause || fail "phase pause"
"$R" ctl resume --run killed >/dev/null || fail "resume"
"$R" ctl update --run killed >/dev/null || fail "update"
"$R" ctl restart eng-00 --run killed >/dev/null || fail "restart"
wait_for 60 happened 1 "command c join command d on d.command_id=c.command_id and d.state='done'
    where c.what='restart' and c.target='eng-00'" || fail "the restart of eng-00 is done"
"$R" ctl restart eng-77 --run killed >/dev/null 2>&1 && fail "an unknown engine is refused"
for verb in stop stop-now; do # of one engine they would end the whole run
    "$R" ctl $verb eng-01 --run killed 2>&1 | grep -q "engine remove" || fail "$verb eng-01 is refused"
done
# A note changes nothing: a row among the commands, and an event. Who was answered can read them.
"$R" ctl note "eng-00 is loud" --run killed | grep -q noted || fail "note"
happened 1 "command where what='note' and state='done' and reason='eng-00 is loud' and
    who like '%(pid %'" || fail "a note is a command"
happened 1 "event where text like 'note by %: eng-00 is loud'" || fail "a note is an event"
"$R" ctl note eng-00 is loud --run killed 2>&1 | grep -q "in quotes" || fail "a note is one word"
"$R" ctl note x --reason y --run killed 2>&1 | grep -q "other commands" || fail "a note has no reason"
"$R" ctl note "   " --run killed 2>&1 | grep -q "this one has 0" || fail "blanks are no words"
"$R" ctl note "$(printf '%0201d' 7)" --run killed 2>&1 | grep -q "this one has 201" ||
    fail "a long note is refused"
# A restart that somebody asked for is no incident; a part that ends once more on its way back is.
alarms() { # since the incident $before
    number "select count(*) n from incident where incident_id > $before and class in
        ('ENGINE-DEAD', 'TRAINER-DEAD', 'ROUTER-DEAD', 'HEALTH-LIES')"
}
alarmed() { [ "$(alarms)" -gt 0 ]; }
starting() { # PART PID: another process of it is there
    pid=$(pid_of "$1")
    [ "${pid:-0}" -gt 1 ] && [ "$pid" -ne "$2" ]
}
goes_on "the commands so far"
wait_for 60 up || fail "all parts are up before they are restarted"
before=$(number "select coalesce(max(incident_id), 0) n from incident")
for part in eng-00 trainer frontend; do
    victim=$(pid_of $part)
    "$R" ctl restart $part --run killed --reason calm >/dev/null || fail "restart $part"
    wait_for 60 another $part "$victim" || fail "$part comes back"
    [ $part != eng-00 ] || wait_for 60 happened 1 "command where state='done' and
        answer='verified; serves again' and command_id=(select max(command_id) from command)" ||
        fail "the restart of $part is done"
    goes_on "the restart of $part"
    [ "$(alarms)" -eq 0 ] || fail "the restart of $part is no incident"
done
wait_for 60 up || fail "all parts are up before the trainer is restarted once more"
victim=$(pid_of trainer)
"$R" ctl restart trainer --run killed >/dev/null || fail "restart trainer"
wait_for 60 starting trainer "$victim" || fail "the trainer comes back"
kill -9 "$pid"
wait_for 60 alarmed || fail "a trainer that ends on its way back is an incident"
wait_for 60 up || fail "the trainer comes back once more"
goes_on "the trainer ended on its way back"
# The first of two restarts of the trainer does not stay open: the second takes its place.
"$R" ctl restart trainer --run killed --reason one >/dev/null || fail "restart trainer"
"$R" ctl restart trainer --run killed --reason two >/dev/null || fail "restart trainer again"
for answer in "a later command took its place:failed" "up again from its last state:done"; do
    wait_for 60 happened 1 "command where answer='${answer%%:*}' and state='${answer##*:}'" ||
        fail "a command ends with ${answer%%:*}"
done
wait_for 60 up || fail "all parts are up after the restarts"
# Nor is one that is asked for while the part is coming back from another, or says that it is up.
before=$(number "select coalesce(max(incident_id), 0) n from incident")
for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do
    for part in trainer frontend; do
        "$R" ctl restart $part --run killed >/dev/null || fail "restart $part, round $round"
    done
done
wait_for 60 up || fail "all parts are up after many restarts"
goes_on "many restarts"
[ "$(alarms)" -eq 0 ] || fail "restarts in quick succession are no incident"
# A restart is done when the engine is up again, also when it is still kept from work, and that is said.
"$R" ctl cordon eng-00 --run killed >/dev/null || fail "cordon"
"$R" ctl restart eng-00 --run killed >/dev/null || fail "restart of a cordoned engine"
wait_for 60 happened 1 "command where answer='verified; still cordoned: takes nothing new' and
    state='done'" || fail "the restart of a cordoned engine is done"
"$R" ctl uncordon eng-00 --run killed >/dev/null || fail "uncordon"
goes_on "the commands"
wait_for 60 up || fail "all parts are up after the commands"

# The same without a terminal, of the run that is alive.
"$R" snapshot --run killed --json | grep -q '"live":true' || fail "snapshot of a live run"
[ "$("$R" top --batch --run killed --json -n 2 -d 0.5 | wc -l)" -eq 2 ] || fail "top of a live run"
"$R" events --run killed -n 100000 | grep -q "restart eng-00" || fail "events of a live run"

# The core is killed: its children end, and the run goes on from its last durable step.
children=$(cat /proc/$core/task/*/children) # ps is no part of the base image
[ "$(echo "$children" | wc -w)" -ge 4 ] || fail "the core has engines, frontend and trainer: $children"
lose_core
gone() { for c in $children; do kill -0 "$c" 2>/dev/null && return 1; done; return 0; }
wait_for 20 gone || fail "children outlive the core"
mkdir "$T/killed.db.d/policies/v999999.tmp-1" "$T/killed.db.d/trainer/step-999999.old-1" # half written
last=$(number "select max(step) n from step where outcome='ok'")
"$R" run --resume --log "$T/killed.db" --headless --num-rollout $((last + 3)) >"$T/out" 2>&1 </dev/null
[ $? -eq 0 ] || fail "the resumed run ends well"
ls -d "$T"/killed.db.d/*/*.tmp-* "$T"/killed.db.d/*/*.old-* >/dev/null 2>&1 &&
    fail "what a killed trainer left half written goes away"
grep -q "^step $((last + 1)) " "$T/out" || fail "it goes on with step $((last + 1))"
none() { # WORDS FROM…: no such row
    [ "$(number "select count(*) n from $2")" = 0 ] || fail "$1"
}
none "no step counts twice" "(select step from step where outcome='ok' group by step having count(*)>1)"
none "no sample is accepted twice" "(select sample_id from attempt where fate=1 group by sample_id having count(*)>1)"
none "every step has its samples" "step s where outcome='ok' and samples<>(select count(*) from attempt a where a.step=s.step and a.eval=0 and a.fate=1 and a.started_us>=s.started_us and a.started_us<=s.ended_us)"
none "every sample is of its step's policy" "attempt a join step s on s.step=a.step and a.started_us between s.started_us and s.ended_us where a.fate=1 and a.eval=0 and a.versions<>cast(s.policy_version as text)"

# Ctrl-C once stops cleanly.
begin killed.db --resume --num-rollout 100000
kill -INT $core
wait $core
[ $? -eq 0 ] || fail "one interrupt ends it cleanly"
core=
grep -q "stopped by the operator" "$T/out" || fail "it says why it ended"
sql "select end_how from session order by session_id desc limit 1" |
    grep -q "stopped by the operator" || fail "the log says why it ended"

# Twice ends it at once.
begin killed.db --resume --num-rollout 100000
"$R" ctl pause --run killed >/dev/null
kill -INT $core
sleep 0.4
kill -INT $core 2>/dev/null
wait $core
core=
grep -q "stopped" "$T/out" || fail "it says that it was stopped"

# A log that cannot be written holds the run; two interrupts end it all the same.
if command -v prlimit >/dev/null 2>&1; then
    begin killed.db --resume --num-rollout 100000
    prlimit --pid $core --fsize=4096
    wait_for 60 grep -q "the log is not recording" "$T/out" || fail "it says that it does not record"
    kill -INT $core
    wait_for 60 grep -q "interrupt again" "$T/out" || fail "it says what it waits for"
    sleep 0.4
    kill -INT $core 2>/dev/null
    ended() { ! grep -q '^State:.[^Z]' /proc/$core/status; } # gone, or waits for its parent
    wait_for 60 ended || { fail "two interrupts end a run whose log is full"; kill -9 $core; }
    core=
fi
"$R" run --headless --log "$T/no.db" --hf-checkpoint "$B/base" $data $short --rollout-batch-size 2 \
    --num-rollout 1 --rollout-external-engine-addrs 127.0.0.1:1 \
    --rollout-url http://name:word@127.0.0.1:1 >"$T/no.out" 2>&1 </dev/null
[ $? -eq 2 ] || fail "a password in a URL is refused"
grep -q "user or password" "$T/no.out" || fail "it says that the URL has a password"
grep -q "word@" "$T/no.out" && fail "the password is not repeated"
exit $failed
