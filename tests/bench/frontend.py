#!/usr/bin/env python3
"""CPU of rolltop's frontend per streamed token and per request, beside a real Dynamo frontend under
the same load in the same run:

  frontend.py --rolltop BINARY --replay bench_replay [--peers ../shared/peers] [--dynamo DIR] [--runs 3]

The load is peers/dynamo/bench/load.c: 64 keep-alive connections, 64-token prompts. Behind rolltop's
frontend stand two bench_replay, which send one event a token, one by one every 10 ms or 25 in one
write, as Dynamo's mock engines do at speed-up 1 and 1000. DIR is one where
`peers/dynamo/peer setup DIR` has run; without it only rolltop's own figures are printed. The cost of
a request is that of 1-token streams; of a token, what remains of 256-token streams after it. The
turns of both alternate, and all CPU is the frontend's alone, summed over its threads."""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ARGS = argparse.ArgumentParser(usage=__doc__)
ARGS.add_argument("--rolltop", required=True, type=pathlib.Path)
ARGS.add_argument("--replay", required=True, type=pathlib.Path)
ARGS.add_argument("--peers", default=pathlib.Path("../shared/peers"), type=pathlib.Path)
ARGS.add_argument("--dynamo", type=pathlib.Path)
ARGS.add_argument("--runs", default=3, type=int)
PACES = (("one by one", "1", "10", "1"), ("coalesced", "25", "50", "1000"))
# name; our tokens a write, every so many ms; their speed-up


def cpu_us(pid):
    tasks = pathlib.Path("/proc/%d/task" % pid).glob("*/schedstat")
    return sum(int(t.read_text().split()[0]) for t in tasks) / 1e3


def listening(process):
    line = process.stdout.readline()
    if "listening on" not in line:
        sys.exit("frontend.py: %s did not start: %s" % (process.args[:2], line))
    return line.split()[-1].rpartition("/")[2]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1] % 10000 + 20000  # the peer's parts use the next ports as well


def spawn(*argv):
    return subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                            text=True)


class Ours:
    name = "rolltop"

    def __init__(self, binary, replay, burst, gap_ms):
        self.parts = []
        addresses = []
        for _ in range(2):
            engine = spawn(replay, "--burst", burst, "--gap-ms", gap_ms)
            self.parts.append(engine)
            addresses += ["--engine", listening(engine)]
        self.parts.append(spawn(binary, "frontend", "--port", 0, *addresses))
        self.port = int(listening(self.parts[-1]).rpartition(":")[2])
        self.pid = self.parts[-1].pid

    def end(self):
        for part in reversed(self.parts):
            part.kill()
            part.wait()


class Theirs:
    name = "Dynamo"

    def __init__(self, peer, folder, speedup):
        self.peer, self.folder = peer, folder
        up = subprocess.run([peer, "up", folder, "--workers", "2", "--port", str(free_port()),
                             "--speedup", speedup], capture_output=True, text=True,
                            env=dict(os.environ, DYN_LOG="error"))
        if up.returncode:
            sys.exit("frontend.py: the Dynamo frontend did not start: %s" % up.stderr.strip())
        state = json.loads((folder / "run/state.json").read_text())
        self.port, self.pid = state["port"], state["frontend"]["pid"]

    def end(self):
        subprocess.run([self.peer, "down", self.folder], stdout=subprocess.DEVNULL)


def turn(load, side, requests, prompt, new):
    before = cpu_us(side.pid)
    out = subprocess.run([load, str(side.port), "64", str(requests), str(prompt), str(new)],
                         capture_output=True, text=True, check=True).stdout
    time.sleep(0.3)
    _, ended, tokens, failed, _, reads, _ = map(float, out.split())
    if ended < requests or failed:
        sys.exit("frontend.py: %s: %d of %d ended, %d failed" % (side.name, ended, requests, failed))
    return {"us": cpu_us(side.pid) - before, "requests": ended, "tokens": tokens, "reads": reads}


def measure(load, sides, runs):
    figures = {side.name: {"request": [], "token": [], "reads": []} for side in sides}
    for side in sides:
        turn(load, side, 64, 64, 16)
    for _ in range(runs):
        for side in sides:
            one = turn(load, side, 1280, 64, 1)
            request = one["us"] / one["requests"]
            many = turn(load, side, 128, 64, 256)
            figure = figures[side.name]
            figure["request"].append(request)
            figure["token"].append((many["us"] - request * many["requests"]) / many["tokens"])
            figure["reads"].append(many["reads"] / many["tokens"])
    return figures


def show(what, unit, figures):
    text = []
    for name, figure in figures.items():
        values = figure[unit]
        text.append("%s %.2f us (%.2f to %.2f)" % (name, statistics.median(values), min(values),
                                                   max(values)))
    if len(figures) == 2:
        ours, theirs = (f[unit] for f in figures.values())
        ratios = [a / b for a, b in zip(ours, theirs)]
        text.append("ratio %.3f (%.3f to %.3f)" % (statistics.median(ratios), min(ratios),
                                                   max(ratios)))
    print("%s: %s" % (what, "; ".join(text)), flush=True)


def main():
    args = ARGS.parse_args()
    bench = args.peers / "dynamo/bench/load.c"
    if not bench.exists():
        sys.exit("frontend.py: %s is missing; name the folder of the peers with --peers" % bench)
    with tempfile.TemporaryDirectory() as folder:
        load = os.path.join(folder, "load")
        subprocess.run(["cc", "-O2", "-o", load, bench], check=True)
        for name, burst, gap_ms, speedup in PACES:
            sides = []
            try:
                sides.append(Ours(args.rolltop.resolve(), args.replay.resolve(), burst, gap_ms))
                if args.dynamo:
                    peer = (args.peers / "dynamo/peer").resolve()
                    sides.append(Theirs(peer, args.dynamo, speedup))
                figures = measure(load, sides, args.runs)
                show("token, " + name, "token", figures)
                show("request, " + name, "request", figures)
                for side, figure in figures.items():
                    print("reads a token, %s: %s %.2f" % (name, side,
                                                          statistics.median(figure["reads"])))
            finally:
                for side in sides:
                    side.end()


main()
