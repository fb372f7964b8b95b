"""A shell whose agents ask a scripted endpoint."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from onward.testing.model_endpoint import RequestLedger, serving_model
from onward.testing.script import ModelScript
from tests.cli.shell import PATIENCE_S, Shell

TALK = """
digraph talk {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  a [prompt="Say something"]
  b [prompt="Say more"]
  start -> a -> b -> exit
}
"""


@contextmanager
def with_model(shell: Shell, script: ModelScript, ledger: RequestLedger | None = None) -> Iterator[Shell]:
    """The shell, with a model that plays a script. It is served by a thread of its own."""
    ready, over = threading.Event(), threading.Event()

    async def serve() -> None:
        async with serving_model(script, ledger=ledger) as endpoint:
            shell.environment |= {
                "OPENAI_BASE_URL": endpoint.base_url,
                "ANTHROPIC_BASE_URL": endpoint.base_url,
                "GOOGLE_GEMINI_BASE_URL": endpoint.base_url,
                "OPENAI_API_KEY": "canary-0123456789",
                "ONWARD_MODEL": "openai:gpt-4o-mini",
            }
            ready.set()
            await asyncio.to_thread(over.wait)

    serving = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    serving.start()
    try:
        assert ready.wait(PATIENCE_S), "the endpoint did not start"
        yield shell
    finally:
        over.set()
        serving.join(PATIENCE_S)
