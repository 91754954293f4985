"""Starts engine K of the real topology again, under the ports that it had:
    python3 start_engine.py PEER DIR K
PEER is the program `peer` of dynamo-sglang and DIR its folder, which must be up."""
import importlib.machinery
import importlib.util
import pathlib
import sys

loader = importlib.machinery.SourceFileLoader("peer", sys.argv[1])
peer = importlib.util.module_from_spec(importlib.util.spec_from_loader("peer", loader))
loader.exec_module(peer)
folder = pathlib.Path(sys.argv[2]).resolve()
state = peer.load(folder)
after = state["next"]
state["next"] = int(sys.argv[3])
peer.start_engine(folder, state)
state["next"] = after
peer.save(folder, state)
