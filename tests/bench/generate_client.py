#!/usr/bin/env python3
"""CPU of the generation client per reply, beside Python's httpx and json.loads on the same server in
the same run: 512-token replies with log-probs (22.8 kB), 256 in flight.

  generate_client.py --replay bench_replay --client bench_generate_client [--turns 3]

The Python side does what slime's does: POST, json.loads, tokens and log-probs out of the pairs. Needs
httpx; the CPU is each client's whole process, start-up excluded."""
import argparse
import asyncio
import json
import re
import statistics
import subprocess
import sys
import time

try:
    import httpx
except ImportError:
    sys.exit("generate_client.py: this Python has no httpx; name one that has with ROLLTOP_PYTHON")

ARGS = argparse.ArgumentParser(usage=__doc__)
ARGS.add_argument("--replay", required=True)
ARGS.add_argument("--client", required=True)
ARGS.add_argument("--turns", default=3, type=int)
ARGS.add_argument("--replies", default=20000, type=int)
ARGS.add_argument("--python-replies", default=1024, type=int)
IN_FLIGHT, TOKENS = 256, 512


async def python_us(port, replies):
    limits = httpx.Limits(max_connections=IN_FLIGHT, max_keepalive_connections=IN_FLIGHT)
    gate = asyncio.Semaphore(IN_FLIGHT)
    url = "http://127.0.0.1:%d/generate" % port

    async with httpx.AsyncClient(limits=limits, timeout=None, trust_env=False) as client:
        async def one(i):
            async with gate:
                body = {"rid": "bench-%d" % i, "input_ids": list(range(1000, 1064)),
                        "sampling_params": {"max_new_tokens": TOKENS, "temperature": 1},
                        "return_logprob": True, "stream": False}
                reply = await client.post(url, json=body)
                reply.raise_for_status()
                meta = json.loads(reply.content)["meta_info"]
                pairs = meta["output_token_logprobs"]
                tokens, logprobs = [p[1] for p in pairs], [p[0] for p in pairs]
                assert len(tokens) == len(logprobs) == TOKENS
                return len(reply.content)

        await one(0)
        before = time.process_time()
        sizes = await asyncio.gather(*(one(i) for i in range(replies)))
        return (time.process_time() - before) * 1e6 / replies, sizes[0]


def ours_us(args, port):
    out = subprocess.run([args.client, "--port", str(port), "--replies", str(args.replies)],
                         capture_output=True, text=True)
    found = re.search(r"([0-9.]+) us CPU a reply", out.stdout)
    if out.returncode or not found:
        sys.exit("generate_client.py: %s%s" % (out.stdout, out.stderr))
    return float(found.group(1))


def main():
    args = ARGS.parse_args()
    server = subprocess.Popen([args.replay], stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline().rpartition(":")[2])
        ours, theirs, size = [], [], 0
        for _ in range(args.turns):
            cost, size = asyncio.run(python_us(port, args.python_replies))
            theirs.append(cost)
            ours.append(ours_us(args, port))
    finally:
        server.kill()
        server.wait()
    ratios = [b / a for a, b in zip(ours, theirs)]
    print("%d-token replies of %d bytes, %d in flight, httpx %s" % (TOKENS, size, IN_FLIGHT,
                                                                   httpx.__version__))
    for name, values in (("rolltop", ours), ("httpx and json.loads", theirs)):
        print("  %-21s %8.1f us CPU a reply (%.1f to %.1f)" % (
            name, statistics.median(values), min(values), max(values)))
    print("  ratio                 1/%.1f (1/%.1f to 1/%.1f)" % (
        statistics.median(ratios), min(ratios), max(ratios)))


main()
