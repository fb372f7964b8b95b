"""The endpoint in a process of its own: what it keeps when either side is killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import msgspec
import pytest

from onward.agents.model import FailureKind, ModelFailed, TextDelta, collect
from onward.errors import InvalidInput
from onward.testing.model_endpoint import read_ledger
from onward.testing.script import ModelScript, ScriptedReply, read_script
from tests.agents.asking import always, failure_of, models_at, pieces_of, request

pytestmark = pytest.mark.anyio


@contextmanager
def endpoint_process(directory: Path, script: ModelScript) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    (directory / "script.json").write_bytes(msgspec.json.encode(script))
    command = [sys.executable, "-m", "onward.testing.model_endpoint", str(directory / "script.json")]
    command += ["--ledger", str(directory / "ledger")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


async def test_its_ledger_is_in_a_file(tmp_path: Path) -> None:
    with endpoint_process(tmp_path, always(text="Hi")) as (url, process):
        models = models_at(url)
        answer = await collect(models.stream(request(), idempotency_key="run/step/m1"))
        await models.close()
        assert answer.text == "Hi"
        process.terminate()
        assert process.wait() == 0
    [entry] = read_ledger(str(tmp_path / "ledger"))
    assert (entry.idempotency_key, entry.is_whole, entry.model) == ("run/step/m1", True, "small")


async def test_a_killed_endpoint_leaves_a_cut_answer_and_an_entry_that_is_not_whole(tmp_path: Path) -> None:
    script = always(text="abcdef", chunk=2, break_after=1, break_with="stall")
    with endpoint_process(tmp_path, script) as (url, process):
        models = models_at(url)
        async with aclosing(models.stream(request())) as pieces:
            assert await anext(pieces) == TextDelta("ab")
            process.kill()
            with pytest.raises(ModelFailed) as caught:
                await anext(pieces)
        assert caught.value.failure.kind is FailureKind.CUT
        assert (await failure_of(models)).kind is FailureKind.TRANSIENT
        await models.close()
    [entry] = read_ledger(str(tmp_path / "ledger"))
    assert not entry.is_whole


async def test_twenty_streams_at_once_are_each_whole(tmp_path: Path) -> None:
    with endpoint_process(tmp_path, always(text="word " * 500)) as (url, _):
        models = models_at(url)
        came = await asyncio.gather(*(pieces_of(models, request(str(n))) for n in range(20)))
        await models.close()
    for pieces, failure in came:
        assert failure is None
        assert "".join(piece.text for piece in pieces if isinstance(piece, TextDelta)) == "word " * 500
    assert [entry.is_whole for entry in read_ledger(str(tmp_path / "ledger"))] == [True] * 20


def test_half_an_entry_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_bytes(b'{"number": 1, "at_')
    assert read_ledger(str(tmp_path / "ledger")) == []
    assert read_ledger(str(tmp_path / "none")) == []


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"rule": []}', '{"default": {"chunk": 0}}', '{"default": {"delay_s": -1}}']
)
def test_a_bad_script_is_one_clear_sentence(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"story\.json is not a script for a model"):
        read_script(text, where="story.json")


def test_a_script_that_cannot_be_used_ends_the_process_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{")
    for name, code in (("bad.json", 2), ("none.json", 1)):
        command = [sys.executable, "-m", "onward.testing.model_endpoint", str(tmp_path / name)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=50)
        assert ended.returncode == code
        assert "Traceback" not in ended.stderr
        assert name in ended.stderr


def test_a_script_in_json_is_the_script_in_python() -> None:
    script = ModelScript(default=ScriptedReply(text="Hi", status=200, delay_s=0.5))
    assert read_script(msgspec.json.encode(script), where="x") == script
