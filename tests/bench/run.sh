#!/bin/sh
# The figures of the main job, one row each, against a peer or a floor measured in the same run:
#   sh tests/bench/run.sh BUILD [NAME…]     (./setup bench [NAME…] builds and calls this)
# Names: first demo generate train smollm scan client frontend sse log probe console memory incident gate
# artifact faults logscale; none means all. Judges nothing:
# the status is 0 whenever the benches ran. Two things are measured in turns (peer, rolltop, peer,
# …), and the ratio is that of neighbours, since other load on the machine changes over minutes.
#   ROLLTOP_PEERS    scripts of the peers (default ../shared/peers)
#   ROLLTOP_PYTHON   a python with torch, transformers, llama_cpp and httpx (default python3)
#   ROLLTOP_DYNAMO   a directory where `peers/dynamo/peer setup DIR` has run
#   ROLLTOP_SMOLLM   directory of SmolLM2-135M; beside it a GGUF file of the same name
#   BENCH_LOG_ROWS   rows of the log of logscale (default 10,000,000: 0.5 GB, some minutes)
#   BENCH_TURNS      turns of the rows with a peer (default 3)
set -u
cd "$(dirname "$0")/../.." || exit 2
build=${1:?usage: sh tests/bench/run.sh BUILD [NAME…]}
shift
bench=$build/tests/bench_
turns=${BENCH_TURNS:-3}
python=${ROLLTOP_PYTHON:-python3}
peers=${ROLLTOP_PEERS:-../shared/peers}
smollm=${ROLLTOP_SMOLLM:-}
all="first demo generate train smollm scan client frontend sse log probe console memory incident"
all="$all gate artifact faults logscale"
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
table=$work/table
: >"$table"

names=$*
for name in $names; do
    case " $all " in
    *" $name "*) ;;
    *)
        echo "bench: unknown name \"$name\"; there are $all" >&2
        exit 2
        ;;
    esac
done
[ -x "$build/rolltop" ] || {
    echo "bench: $build/rolltop is not built; run ./setup bench" >&2
    exit 2
}
names=${names:-$all}
wanted() { case " $names " in *" $1 "*) ;; *) return 1 ;; esac; }

title() { printf '\n== %s\n' "$*"; }
# The command as a reader would type it, with the machine's own paths taken out.
show() {
    printf '$ %s\n' "$*" | sed "s|$python |python3 |; s|$peers/|peers/|; s|${smollm:-//}|SMOLLM|g"
}
run() { # FILE COMMAND…: shows the command, keeps its output in FILE as well
    out=$1
    shift
    show "$@"
    "$@" >"$out" 2>"$work/err" || {
        echo "bench: status $? of $1" >&2
        tail -n 5 "$work/err" >&2
        cat "$out"
        return 1
    }
    cat "$out"
}
row() { # WHAT TARGET MEASURED COMMAND
    printf '| %s | %s | %s | `%s` |\n' "$1" "$2" "$3" "$4" >>"$table"
}
skip() { # WHAT TARGET WHY COMMAND
    echo "skipped: $3"
    row "$1" "$2" "skipped: $3" "$4"
}
# Numbers of standard input, one a line, as "median (least to greatest)"; $1 is their format.
spread() {
    sort -g | awk -v f="$1" '{ v[NR] = $1 } END {
        if (NR == 0) { print "no figure"; exit }
        m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
        printf f " (" f " to " f ")\n", m, v[1], v[NR] }'
}
has_python() { # MODULE…
    for module in "$@"; do
        "$python" -c "import $module" >/dev/null 2>&1 || return 1
    done
}

# ---- the machine ---------------------------------------------------------------------------
load() { cut -d ' ' -f 1-3 /proc/loadavg; }
machine() {
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
    flags=$(sed -n 's/^flags[^:]*: //p' /proc/cpuinfo | head -n 1)
    simd=
    for flag in avx2 avx512f avx512_vnni avx512_bf16 amx_bf16; do
        case " $flags " in *" $flag "*) simd="$simd $flag" ;; esac
    done
    memory=$(awk '/^MemTotal/ { printf "%.1f GiB", $2 / 1048576 }' /proc/meminfo)
    cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
    type=$(sed -n 's/^CMAKE_BUILD_TYPE:[A-Z]*=//p' "$build/CMakeCache.txt")
    upper=$(echo "$type" | tr '[:lower:]' '[:upper:]')
    options=$(sed -n "s/^CMAKE_C_FLAGS_$upper:[A-Z]*=//p" "$build/CMakeCache.txt")
    echo "date      $(date -u '+%Y-%m-%d %H:%M UTC')"
    echo "commit    $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
    echo "CPU       ${cpu:-unknown}, $(nproc) cores,$simd"
    echo "memory    $memory"
    echo "kernel    $(uname -sr)"
    echo "compiler  $("${cc:-cc}" --version 2>/dev/null | head -n 1), $options"
    echo "load      $(load) before"
}

# ---- rows ----------------------------------------------------------------------------------
row_first() {
    title "first: built tree to the first finished sample in the log"
    command="bench_demo --rolltop rolltop --first"
    : >"$work/v" && : >"$work/c"
    for seed in 1 2 3; do
        run "$work/o" "${bench}demo" --rolltop "$build/rolltop" --first --seed "$seed" || continue
        sed -n 's/.*after \([0-9.]*\) s.*/\1/p' "$work/o" >>"$work/v"
        sed -n 's/.*; \([0-9.]*\) CPU seconds.*/\1/p' "$work/o" >>"$work/c"
    done
    row "built tree to the first finished sample in the log, seeds 1, 2, 3" "≤ 3 s" \
        "$(spread '%.2f s' <"$work/v"); $(spread '%.2f' <"$work/c") CPU-s" "$command"
}

demo_run() { # SEED: once for each seed, whichever row asks
    [ -s "$work/demo$1" ] && return
    run "$work/demo$1" "${bench}demo" --rolltop "$build/rolltop" --console --seed "$1"
}
row_demo() {
    title "demo: held-out eval reward, 3 engines, frontend, trainer and core, console attached"
    for seed in 1 2 3; do
        demo_run "$seed" || continue
        row "demo, seed $seed: eval reward before, after; time" "≤ 0.2, ≥ 0.9; ≤ 300 s" \
            "$(sed -n 's/.*eval before \([0-9.]*\), after \([0-9.]*\), in \([0-9.]* s\) and \([0-9]* steps\).*/\1, \2; \3, \4/p' "$work/demo$seed")" \
            "bench_demo --rolltop rolltop --console --seed $seed"
    done
}
row_memory() {
    title "memory: all processes of the demo together, at the peak"
    seeds=1
    wanted demo && seeds="1 2 3"
    for seed in $seeds; do
        demo_run "$seed" || continue
        sed -n 's/.*its peak \([0-9]*\) MiB PSS (\([0-9]*\) .*/\1 \2/p' "$work/demo$seed"
    done >"$work/o"
    grep -h '^[0-9]' "$work/o" | sort -n | tail -n 1 >"$work/v"
    cat "$work/v"
    row "resident memory of the whole demo with a console, peak (RSS counts shared pages again)" \
        "≤ 500 MiB" "$(sed 's/\(.*\) \(.*\)/\1 MiB PSS, \2 MiB RSS/' "$work/v")" \
        "bench_demo --rolltop rolltop --console"
}

# Lines "RATE JOB|WHO", best first, of bench_cpu.py's JSON.
peer_rates() {
    sed -n 's/.*"variant": "\([^"]*\)", "job": "\([^"]*\)".*"per_cpu_second": \([0-9]*\).*/\3 \2|\1/p' |
        sort -rn
}
own_rate() { sed -n 's/.* per CPU second *\([0-9]*\).*/\1/p'; }
# Where the machine is busy, OpenMP threads that spin steal from themselves: the peer is better
# off when they sleep.
peer_environment() {
    if [ -z "${OMP_WAIT_POLICY:-}" ] &&
        awk -v n="$(nproc)" '{ exit !($1 >= n) }' /proc/loadavg; then
        OMP_WAIT_POLICY=PASSIVE
        export OMP_WAIT_POLICY
        echo "the machine is busy: peers run with OMP_WAIT_POLICY=PASSIVE"
    fi
}

# One turn of bench_cpu.py against our figure of the job at which it is best, into $work/ratio.
compare() { # TURN, with $work/peer written and own_job giving ours
    best=$(peer_rates <"$work/peer" | head -n 1)
    rate=${best%% *}
    job=${best#* }
    own_job "${job%%|*}" || return 1
    ours=$(own_rate <"$work/o")
    echo "turn $1: peer's best row $rate tok per CPU-s (${job#*|}, ${job%%|*}), rolltop $ours"
    echo "$ours" >>"$work/ours"
    echo "$rate" >>"$work/theirs"
    awk -v a="$ours" -v b="$rate" 'BEGIN { print a / b }' >>"$work/ratio"
}
compared() { # text of the row's figure
    echo "$(spread '%.2fx' <"$work/ratio"): $(spread '%.0f' <"$work/ours") against" \
        "$(spread '%.0f' <"$work/theirs") tok per CPU-s"
}
clear_turns() { : >"$work/ratio" && : >"$work/ours" && : >"$work/theirs"; }

row_generate() {
    title "generate: one engine over HTTP with log-probs, batch 32, 2,557,888 parameters, FP32"
    what="generation of one engine, HTTP and log-probs included, batch 32, per CPU-s, to torch"
    command="bench_engine_load --engine rolltop; bench_cpu.py --threads 1 --what generate"
    own_job() { # "generate 32 x (P + N)"
        set -- $(echo "$1" | tr -c '0-9\n' ' ')
        run "$work/o" "${bench}engine_load" --engine "$build/rolltop" --batch "$1" --prompt "$2" \
            --new "$3"
    }
    if [ ! -f "$peers/torch/bench_cpu.py" ] || ! has_python torch transformers; then
        own_job "generate 32 x (32 + 96)"
        skip "$what" "≥ 2x" "no torch or no bench_cpu.py; rolltop alone: $(own_rate <"$work/o")" \
            "$command"
        return
    fi
    clear_turns
    for turn in $(seq "$turns"); do
        run "$work/peer" "$python" "$peers/torch/bench_cpu.py" --threads 1 --seconds 3 \
            --what generate --variants plain,hf --json && compare "$turn"
    done
    row "$what" "≥ 2x" "$(compared)" "$command"
}

row_train() {
    title "train: forward, backward, clipping and AdamW in FP32, 2,557,888 parameters"
    what="training in FP32, per CPU-s, to torch (compile included)"
    command="bench_train_step; bench_cpu.py --threads 1 --what train --variants plain,hf,compile"
    own_job() { # "train B x T"
        set -- $(echo "$1" | tr -c '0-9\n' ' ')
        run "$work/o" "${bench}train_step" --batch "$1" --length "$2"
    }
    if [ ! -f "$peers/torch/bench_cpu.py" ] || ! has_python torch transformers; then
        own_job "train 32 x 128"
        skip "$what" "≥ 1x" "no torch or no bench_cpu.py; rolltop alone: $(own_rate <"$work/o")" \
            "$command"
        return
    fi
    clear_turns
    for turn in $(seq "$turns"); do
        run "$work/peer" "$python" "$peers/torch/bench_cpu.py" --threads 1 --seconds 1 \
            --what train --variants plain,hf,compile --json && compare "$turn"
    done
    row "$what" "≥ 1x" "$(compared)" "$command"
}

# Columns of the peers' Markdown rows: wall median, CPU median.
wall_of() { sed -n "s/^| $1 | \([0-9.]*\) |.*/\1/p" "$2"; }
cpu_of() { sed -n "s/^| $1 | [^|]* | [^|]* | \([0-9.]*\) |.*/\1/p" "$2"; }
own_wall() { sed -n 's/.* median *\([0-9]*\) .*/\1/p'; }
pair() { # NAME OURS_WALL OURS_CPU THEIRS_WALL THEIRS_CPU
    echo "$1: rolltop $2 tok/s ($3 per CPU-s), peer $4 ($5 per CPU-s)"
    awk -v a="$2" -v b="$4" -v c="$3" -v d="$5" 'BEGIN { print a / b, c / d }' >>"$work/$1"
    echo "$2 $4" >>"$work/$1.wall"
}
pair_row() { # NAME WHAT COMMAND
    [ -s "$work/$1" ] || {
        row "$2" "≥ 1x" "no figure" "$3"
        return
    }
    row "$2" "≥ 1x" "$(cut -d ' ' -f 1 "$work/$1" | spread '%.2fx') wall, $(
        cut -d ' ' -f 2 "$work/$1" | spread '%.2fx') per CPU-s; $(
        cut -d ' ' -f 1 "$work/$1.wall" | spread '%.0f') against $(
        cut -d ' ' -f 2 "$work/$1.wall" | spread '%.0f') tok/s" "$3"
}

smollm_llama() { # GGUF
    run "$work/peer" "$python" "$peers/smollm/bench_llama.py" "$1" --threads 2 --repeat 2 \
        --types F16 --batch 1 8 || return 1
    for batch in 1 8; do
        run "$work/o" "${bench}generate" --model "$smollm" --dtype bfloat16 --threads 2 --greedy \
            --batch "$batch" --prompt 64 --new 64 || return 1
        pair "batch$batch" "$(own_wall <"$work/o")" "$(own_rate <"$work/o")" \
            "$(wall_of "generate F16 batch $batch" "$work/peer")" \
            "$(cpu_of "generate F16 batch $batch" "$work/peer")"
    done
}
smollm_train() {
    run "$work/peer" "$python" "$peers/smollm/bench_torch.py" "$smollm" --threads 2 --repeat 2 \
        --train-only || return 1
    run "$work/o" "${bench}train_step" --model "$smollm" --threads 2 --batch 8 --length 128 \
        || return 1
    pair train135 "$(own_wall <"$work/o")" "$(own_rate <"$work/o")" \
        "$(wall_of "train step float32 batch 8" "$work/peer")" \
        "$(cpu_of "train step float32 batch 8" "$work/peer")"
}
row_smollm() {
    title "smollm: SmolLM2-135M, 2 threads, wall"
    generate="bench_generate --model SMOLLM --dtype bfloat16 --threads 2 --greedy"
    llama="bench_llama.py SMOLLM.gguf --threads 2 --types F16 --batch 1 8"
    train="bench_train_step --model SMOLLM --threads 2 --batch 8 --length 128"
    torch="bench_torch.py SMOLLM --threads 2 --train-only"
    gguf=${smollm%/}.gguf
    if [ -z "$smollm" ] || [ ! -d "$smollm" ]; then
        skip "SmolLM2-135M, generation and training" "≥ 1x" "ROLLTOP_SMOLLM names no directory" \
            "$generate"
        return
    fi
    for turn in $(seq "$turns"); do
        if [ -f "$gguf" ] && [ -d "$peers/smollm" ] && has_python llama_cpp numpy; then
            smollm_llama "$gguf"
        fi
        if [ -d "$peers/smollm" ] && has_python torch transformers; then
            smollm_train
        fi
    done
    for batch in 1 8; do
        what="SmolLM2-135M in BF16, 64 + 64 tokens, batch $batch, 2 threads, to llama.cpp's F16"
        if [ -f "$gguf" ] && has_python llama_cpp numpy; then
            pair_row "batch$batch" "$what" "$generate --batch $batch --prompt 64 --new 64; $llama"
        else
            skip "$what" "≥ 1x" "no llama_cpp or no $(basename "$gguf")" "$generate; $llama"
        fi
    done
    what="SmolLM2-135M, training in FP32, 8 x 128, 2 threads, to torch"
    if has_python torch transformers; then
        pair_row train135 "$what" "$train; $torch"
    else
        skip "$what" "≥ 1x" "no torch or no transformers" "$train; $torch"
    fi
}

row_scan() {
    title "scan: one reply of 8,192 tokens with log-probs, CPU"
    run "$work/o" "${bench}scan"
    first() { sed -n "s/.*$1/\\1/p" "$work/o" | head -n 1; }
    row "scan of an 8,192-token log-prob reply, all checks included" "≥ 500 MB/s" \
        "$(first 'scanner  *\([0-9]* MB.s\).*')" "bench_scan"
    row "the same, its time to memchr from comma to comma (memchr without a match runs at $(
        first 'no match  *\([0-9]*\) MB.*') MB/s)" "≤ 2x" \
        "$(first 'ratio  *\([0-9.]*\) .*')x" "bench_scan"
}
row_client() {
    title "client: CPU of the generation client a reply, against httpx and json.loads"
    what="generation client, CPU a reply of 512 tokens with log-probs (22.7 kB), 256 in flight, checks and log included, to httpx and json.loads"
    command="generate_client.py --replay bench_replay --client bench_generate_client"
    if ! has_python httpx; then
        skip "$what" "≤ 1/30" "no httpx in $python" "$command"
        return
    fi
    run "$work/o" "$python" tests/bench/generate_client.py --replay "${bench}replay" \
        --client "${bench}generate_client" --turns "$turns" || return
    of() { sed -n "s/^  $1 *\([0-9.]*\) us.*/\1/p" "$work/o"; }
    row "$what" "≤ 1/30" "$(sed -n 's/^  ratio *//p' "$work/o"): $(of rolltop) against $(
        of 'httpx and json.loads') µs" "$command"
}
row_frontend() {
    title "frontend: CPU a streamed token and a request, against a real Dynamo frontend"
    command="frontend.py --rolltop rolltop --replay bench_replay --dynamo DIR"
    set -- --rolltop "$build/rolltop" --replay "${bench}replay" --peers "$peers" --runs "$turns"
    if [ ! -f "$peers/dynamo/bench/load.c" ]; then
        skip "frontend, CPU a token and a request" "≤ 1/2, ≤ 1/4, ≤ 1/5" "no $peers/dynamo" \
            "$command"
        return
    fi
    [ -d "${ROLLTOP_DYNAMO:-//}/venv" ] && set -- "$@" --dynamo "$ROLLTOP_DYNAMO"
    run "$work/o" python3 tests/bench/frontend.py "$@" || return
    of() { sed -n "s/^$1: //p" "$work/o"; }
    row "frontend, CPU a token that comes alone, to Dynamo's" "≤ 1/2" "$(of 'token, one by one')" \
        "$command"
    row "frontend, CPU a token, 25 in one write, to Dynamo's" "≤ 1/4" "$(of 'token, coalesced')" \
        "$command"
    row "frontend, CPU a request of 64 prompt tokens and one new one, to Dynamo's" "≤ 1/5" \
        "$(of 'request, one by one')" "$command"
}
row_sse() {
    title "sse: CPU and memory of a stream, 1,000 streams"
    run "$work/o" "${bench}sse_cpu" 1000 300
    row "user CPU a streamed token above a bare epoll reader, 1,000 streams" "≤ 0.5 µs" \
        "$(sed -n 's/.*above bare *\([0-9.]*\) us a token \(([^)]*)\).*/\1 µs \2/p' "$work/o")" \
        "bench_sse_cpu 1000 300"
    row "heap of a stream in flight, ten tokens each, 1,000 streams" "≤ 8 KiB" \
        "$(sed -n 's/.*heap a stream *\([0-9.]* KiB\).*/\1/p' "$work/o")" "bench_sse_cpu 1000 300"
    title "sse: CPU a streamed token, 256 streams"
    run "$work/o" "${bench}sse_cpu"
    us() { sed -n "s/.*$1 *\([0-9.]*\) us.*/\1/p" "$work/o"; }
    row "SSE: CPU a token in the core's client, parse and log included, 256 streams, to bare epoll" \
        "≤ 2x" "$(sed -n 's/.*ratio *\([0-9.]*\) (\([0-9.]*\) to \([0-9.]*\)).*/\1x (\2x to \3x)/p' \
            "$work/o"): $(us 'and log') against $(us 'reader') µs" "bench_sse_cpu"
}
row_log() {
    title "log: probe-sized rows, 1,000 a commit, synchronous=FULL, against a bare SQLite loop"
    run "$work/o" "${bench}log_writer"
    row "log: rows/s at 1,000 rows a commit, synchronous=FULL, to a bare SQLite loop" "≥ 0.8x" \
        "$(sed -n 's|.*median store \([0-9]*\) rows/s, bare \([0-9]*\) rows/s, ratio \([0-9.]*\) (\([0-9.]*\) to \([0-9.]*\)).*|\3x (\4x to \5x): \1 against \2 rows/s|p' \
            "$work/o")" "bench_log_writer"
}
row_probe() {
    title "probing: 1,024 engines at 1 Hz, and how soon a frozen one is seen"
    run "$work/o" "${bench}probe_load"
    row "probing 1,024 synthetic engines at 1 Hz" "≤ 10 % of a core" \
        "$(sed -n 's/.*at 1 Hz: \([0-9.]*\) % of a core/\1/p' "$work/o") %" "bench_probe_load"
    row "a frozen engine is seen, first and last of 16" "≤ 3 s" \
        "$(sed -n 's/.*first after \([0-9.]*\) s, last after \([0-9.]*\) s/\1 to \2/p' "$work/o") s" \
        "bench_probe_load"
}

row_console() {
    title "console: first frame, CPU at 1 Hz, 16 engines"
    run "$work/o" "${bench}console"
    grep -E '^ *[0-9]+x[0-9]+' "$work/o" >"$work/v"
    row "console: first frame on a live run of 16 engines, best and worst of 3, at 80x24, 120x40, 200x60" \
        "≤ 50 ms" "$(awk '{ printf "%s%s to %s", (NR > 1 ? "; " : ""), $2, $3 }' "$work/v") ms" \
        "bench_console"
    row "console: CPU at 1 Hz with 16 engines, at 80x24, 120x40, 200x60" "≤ 1 % of a core" \
        "$(awk '{ printf "%s%s", (NR > 1 ? "; " : ""), $5 }' "$work/v") %" "bench_console"
    row "console: wake-ups a second at 1 Hz, at 80x24, 120x40, 200x60" "≤ 1 a refresh" \
        "$(awk '{ printf "%s%s", (NR > 1 ? "; " : ""), $7 }' "$work/v")" "bench_console"
    title "console: bytes, CPU without the start, keys, at 16, 64 and 1,024 engines"
    run "$work/o" "${bench}console" keys
    grep -E '^ *[0-9]+ +[0-9]+ +[0-9]+ ' "$work/o" >"$work/v"
    row "console: bytes a refresh at 200x50, median, with 16, 64, 1,024 engines" "≤ 1.2 kB at 16" \
        "$(awk '{ printf "%s%s", (NR > 1 ? "; " : ""), $2 }' "$work/v") B" "bench_console keys"
    row "console: CPU at 1 Hz with 16, 64, 1,024 engines" "≤ 0.2 % at 64" \
        "$(awk '{ printf "%s%s", (NR > 1 ? "; " : ""), $4 }' "$work/v") %" "bench_console keys"
    row "console: key to first byte, p50 and p99, with 16, 64, 1,024 engines" \
        "≤ 5 ms, p99 ≤ 16 ms" \
        "$(awk '{ printf "%s%s and %s", (NR > 1 ? "; " : ""), $6, $7 }' "$work/v") ms" \
        "bench_console keys"
    row "console: read a frame of the next second with 16, 64, 1,024 engines, CPU" "≤ 4 ms at 1,024" \
        "$(sed -n 's/.*live: read \([0-9.]*\) ms.*/\1/p' "$work/o" | paste -sd ';') ms" \
        "bench_console keys"
    row "console: order and draw a frame of 16, 64, 1,024 engines, CPU" "≤ 4 ms at 1,024" \
        "$(sed -n 's/.*order and draw \([0-9.]*\) ms.*/\1/p' "$work/o" | paste -sd ';') ms" \
        "bench_console keys"
    title "console: 1,024 engines, 100,000 events/s beside it; htop and btop beside the same writer"
    run "$work/o" "${bench}console_load"
    row "console, 1,024 engines, 100,000 events/s beside it: CPU of a refresh, read and drawn" \
        "≤ 4 ms" "$(awk '$1 == "rolltop" { print $3 }' "$work/o") ms" "bench_console_load"
    row "the same: key to first byte, p50 and p99, rolltop, htop, btop (in that order, where installed)" \
        "≤ 5 ms, p99 ≤ 16 ms" \
        "$(awk '$1 ~ /^(rolltop|htop|btop)$/ && $5 ~ /^[0-9]/ { printf "%s%s and %s", (n++ ? "; " : ""), $5, $6 }' "$work/o") ms" \
        "bench_console_load"
    row "the same: events/s of the writer with the console, to the writer alone, median" \
        "≥ 0.99x" "$(sed -n 's/^  events.s *//p' "$work/o")" "bench_console_load"
    row "the same: CPU of an event" "≤ 1.01x" "$(sed -n 's/^  CPU each *//p' "$work/o")" \
        "bench_console_load"
}

row_incident() {
    title "replay of the recorded incident, all panes at 200x60"
    run "$work/o" "${bench}incident"
    row "replay of the recorded incident: first picture from the closed log, 200x60, best of 20" \
        "≤ 100 ms" "$(sed -n 's/^first picture \([0-9.]*\) ms.*/\1/p' "$work/o") ms" \
        "bench_incident"
    row "replay of the recorded incident: jump to a moment, all panes, p50 and p99; bare rows of the same file, p50" \
        "≤ 50 ms" "$(sed -n 's/^jump p50 \([0-9.]*\) ms  p99 \([0-9.]*\) ms.*/\1 and \2/p' \
            "$work/o"); $(sed -n 's/^bare rows p50 \([0-9.]*\) ms.*/\1/p' "$work/o") ms" \
        "bench_incident"
}

# p50 and p99 of the line that begins with $1, of the first table in $work/o.
gate_of() {
    sed -n "s/^ *$1  *p50 *\([0-9.]*\)  p99 *\([0-9.]*\) .*/\1 and \2 ms/p" "$work/o" | "${2:-head}" -n 1
}
row_gate() {
    title "gate: how long an update keeps generation waiting, synthetic engines over HTTP"
    run "$work/o" "${bench}gate" "$build/rolltop" --updates 200
    row "gate closed for a healthy update of 8 synthetic engines without loading, p50 and p99; with it" \
        "≤ 10 ms, p99 ≤ 25 ms" "$(gate_of 'without loading'); $(gate_of 'gate closed')" \
        "bench_gate rolltop --updates 200"
    run "$work/o" "${bench}gate" "$build/rolltop" --engines 1024 --updates 30
    row "the same with 1,024 synthetic engines; CPU of an update" "≤ 150 ms" \
        "$(gate_of 'without loading'); $(sed -n 's/^CPU a step: //p' "$work/o")" \
        "bench_gate rolltop --engines 1024 --updates 30"
    run "$work/o" "${bench}gate" "$build/rolltop" --engines 64 --fail 10
    row "roll-back of 64 synthetic engines after a failure at the last one, gate closed" "≤ 1 s" \
        "$(gate_of 'gate closed' tail)" "bench_gate rolltop --engines 64 --fail 10"
}

row_artifact() {
    title "artifact: check of a 1.2 GB checkpoint against cat of the same file"
    run "$work/o" "${bench}artifact" 9
    row "artifact check (finite, norms, digest) of 1.2 GB, to cat from cache; CPU" "≤ 2x on 2 cores" \
        "$(sed -n 's/^BF16.*wall \(.*\)$/\1/p' "$work/o")" "bench_artifact 9"
}

# One file of any size: made, looked at, read by ten while it is written. Its figures must not
# depend on the number of rows.
row_logscale() {
    rows=${BENCH_LOG_ROWS:-10000000}
    title "logscale: a log of $rows rows: first frame, jump to any T, memory, -wal"
    run "$work/o" env ROLLTOP="$build/rolltop" "${bench}log_scale" all "$rows"
    shown="bench_log_scale all $rows"
    row "log of $rows rows: first frame of \`rolltop replay\`" "≤ 100 ms" \
        "$(sed -n 's/.*frame of replay, //p' "$work/o")" "$shown"
    row "log of $rows rows: jump to any T, all panes" "≤ 50 ms" \
        "$(sed -n 's/.*all panes: \(.*\); resident.*/\1/p' "$work/o")" "$shown"
    row "resident memory of the writer over $rows rows" "flat, ≤ 64 MiB" \
        "$(sed -n 's/.* make: .*; resident //p' "$work/o")" "$shown"
    row "-wal beside a writer at full speed with ten views" "bounded, ≤ 64 MB" \
        "$(sed -n 's/.*the -wal was at most \(.*\), dropped.*/\1/p' "$work/o")" "$shown"
}

row_faults() {
    title "faults: processes killed at every phase of the policy transaction, engines that misbehave"
    run "$work/o" "$build/tests/policy_phases_test" all
    row "real processes: kills at each phase and faults of an engine after which all held one policy" \
        "all" "$(grep -c ' came back,' "$work/o") of $(grep -c ' [0-9.]* s$' "$work/o")" \
        "policy_phases_test all"
}

machine | tee "$work/machine"
peer_environment
for name in $all; do
    wanted "$name" && "row_$name"
done
title "all rows"
cat "$work/machine"
echo "load      $(load) after"
printf '\n| figure | target | measured | command |\n| --- | --- | --- | --- |\n'
cat "$table"
