"""Isolated handlers: a function in a process of its own, which can be ended with all that it started."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onward import Onward
from onward.engine.stop import StopSwitch
from onward.errors import InvalidInput
from onward.handlers.function import IsolatedReply
from onward.model.events import AttemptFailed, StepFinished
from onward.model.run import AttemptState, Run, RunStatus
from onward.store.codec import unseal
from onward.threads import in_thread
from tests.cli.shell import wait_for_file
from tests.engine import isolated_functions as functions
from tests.engine.processes import Processes
from tests.world import line


def app_with(tmp_path: Path, function: Callable[..., Any]) -> Onward:
    app = Onward(str(tmp_path / "onward.db"))
    app.handler("work", isolated=True)(function)
    return app


async def ran(
    app: Onward, attrs: str = "", *, source: str | None = None, workdir: str | None = None, **inputs: Any
) -> Run:
    async with app:
        pipeline = await app.pipeline(source or line("a", a=f"type=work, {attrs}"))
        return await app.run(pipeline, inputs=inputs, run_id="run", workdir=workdir)


def alive(ledger: Path) -> list[str]:
    """The processes named in the ledger that have not ended."""
    return [pid for pid in ledger.read_text().split() if os.path.exists(f"/proc/{pid}")]


async def until_there(path: Path) -> None:
    await in_thread(wait_for_file, path)


async def test_an_isolated_function_is_told_of_its_step_in_another_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = app_with(tmp_path, functions.tell)
    source = line("a", a="type=work, color=red").replace("{", '{ graph [goal="ship it"];', 1)
    run = await ran(app, source=source, workdir=str(tmp_path), city="Ulm", tester=os.getpid())
    assert run.status is RunStatus.COMPLETED, run.detail
    assert run.context["told"] == ["run", "a#1", "a", 1, "run/a#1", "ship it"]
    assert (run.context["prompt"], run.context["color"]) == ("do it", "red")
    assert run.context["context"] == {"city": "Ulm", "missing": None}
    assert (run.context["is_same_process"], run.context["stdin"]) == (False, "")
    assert run.context["directory"].startswith(str(tmp_path))
    assert run.context["cwd"] == str(tmp_path)
    printed = capsys.readouterr().err
    for said in ("on standard output", "on standard error", "past every buffer", "by a child"):
        assert said in printed


@pytest.mark.slow
async def test_an_isolated_function_returns_what_a_handler_may_return(tmp_path: Path) -> None:
    app, names = Onward(str(tmp_path / "onward.db")), ["nothing", "text", "result", "large", "artifact"]
    for name in names:
        app.handler(name, isolated=True)(getattr(functions, name))
    source = line(*names, **{name: f"type={name}" for name in names})
    async with app:
        run = await app.run(await app.pipeline(source), run_id="run")
        engine = await app.engine()
        log = [unseal(record) for record in await engine.journal.read("run")]
    assert run.status is RunStatus.COMPLETED, run.detail
    assert (run.context["x"], run.context["last_response"]) == (1, "as it was said ✓\0")
    assert run.context["large"] == "✓" * 3_000_000
    assert list(run.artifacts) == ["found.txt"]
    (result,) = [event for event in log if isinstance(event, StepFinished) and event.node == "result"]
    assert (result.outcome.notes, result.outcome.preferred_label) == ("a note", "left")
    assert result.log == ("from the result",)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (functions.fails, "ValueError: the card was refused"),
        (functions.leaves, "SystemExit: gone"),
        (functions.panics, "a#1: Panic: index out of bounds"),
        (functions.says_too_much, "a#1: ValueError: xxx"),
        (functions.breaks, "its process was ended by signal 11: a last word"),
        (functions.no_json, "context value 'when'"),
        (functions.wrong_type, "the handler of node 'a' returned a int"),
        (functions.too_large, "at most 64 MiB"),
    ],
)
async def test_what_goes_wrong_in_an_isolated_function_fails_its_step_with_a_reason(
    tmp_path: Path, function: Callable[..., Any], said: str
) -> None:
    run = await ran(app_with(tmp_path, function), "max_retries=0")
    assert (run.status, run.reason) == (RunStatus.FAILED, "step_failed")
    assert said in run.detail


async def test_an_error_that_is_too_long_to_be_sent_is_retried_as_any_other(tmp_path: Path) -> None:
    app = app_with(tmp_path, functions.says_too_much)
    async with app:
        run = await app.run(await app.pipeline(line("a", a="type=work, max_retries=1")), run_id="run")
        log = [unseal(record) for record in await (await app.engine()).journal.read("run")]
    assert run.status is RunStatus.FAILED
    failed = [event for event in log if isinstance(event, AttemptFailed)]
    assert len(failed) == 2
    assert all(one.output is not None and one.output.error == "ValueError" for one in failed)


@pytest.mark.parametrize("function", [functions.forks, functions.forks_and_raises])
async def test_only_the_function_answers_and_not_a_copy_of_its_process(
    tmp_path: Path, function: Callable[..., Any]
) -> None:
    run = await ran(app_with(tmp_path, function), "max_retries=0")
    assert run.status is RunStatus.COMPLETED, run.detail
    assert run.context["said_by"] == "the function"


@pytest.mark.slow
async def test_a_time_limit_ends_an_isolated_function_and_all_that_it_started_before_the_next_attempt(
    tmp_path: Path,
) -> None:
    """I16."""
    ledger = tmp_path / "ledger"
    attrs = 'timeout="3s", max_retries=1, retry_policy=none'
    run = await ran(app_with(tmp_path, functions.hangs), attrs, ledger=str(ledger))
    assert (run.status, run.detail) == (RunStatus.FAILED, "step a#1: timed out after 3 s")
    assert len(ledger.read_text().split()) == 4, "two attempts, and nothing of the first beside the second"
    assert alive(ledger) == []


@pytest.mark.parametrize("how", ["stop", "cancel", "pause"])
async def test_a_request_ends_an_isolated_function_at_once(tmp_path: Path, how: str) -> None:
    """I16."""
    ledger, stop = tmp_path / "ledger", StopSwitch()
    app = app_with(tmp_path, functions.hangs)
    async with app:
        pipeline = await app.pipeline(line("a", a="type=work"))
        inputs = {"ledger": str(ledger)}
        driving = asyncio.create_task(app.run(pipeline, inputs=inputs, run_id="run", stop=stop))
        await until_there(ledger)
        if how == "stop":
            stop.request("signal", now=True)
        elif how == "pause":
            await app.pause("run", after="now")
        else:
            await app.cancel("run")
        run = await driving
    assert run.status is (RunStatus.CANCELLED if how == "cancel" else RunStatus.PAUSED)
    if how != "cancel":
        assert run.open_steps["a#1"].state is AttemptState.INTERRUPTED
        assert run.open_steps["a#1"].repeatable, "nothing of it is left, so nothing is in doubt"
    assert alive(ledger) == []


@pytest.mark.crash
def test_an_isolated_function_dies_with_its_worker(tmp_path: Path) -> None:
    """I16."""
    ledger = tmp_path / "ledger"
    Path(tmp_path, "mine.py").write_text(
        "from onward import Onward\nfrom tests.engine.isolated_functions import hangs\n"
        "app = Onward()\napp.handler('work', isolated=True)(hangs)\n"
    )
    Path(tmp_path, "work.dot").write_text(line("a", a="type=work"))
    words = ["run", "work.dot", "--app", "mine:app", "--set", f"ledger={ledger}"]
    running = subprocess.Popen(
        [sys.executable, "-m", "onward", *words],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
        stdout=subprocess.DEVNULL,
    )
    wait_for_file(ledger)
    started = Processes([int(pid) for pid in ledger.read_text().split()])
    running.kill()
    running.wait()
    assert started.survivors(timeout_s=20) == []
    started.close()


def _nested() -> Callable[..., Any]:
    def inner(step: Any) -> None: ...

    return inner


async def _async(step: Any) -> None: ...


class _Called:
    def __call__(self, step: Any) -> None: ...


def _of_the_script(step: Any) -> None: ...


_of_the_script.__module__ = "__main__"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda step: None, "is a lambda"),
        (_nested(), "is defined inside another function"),
        (_async, "is async"),
        (_Called(), "is not a function"),
        (_of_the_script, "move it to a module"),
    ],
)
def test_a_function_that_another_process_cannot_import_is_refused_when_it_is_registered(
    function: Callable[..., Any], said: str
) -> None:
    with pytest.raises(InvalidInput, match=said):
        Onward(":memory:").handler("work", isolated=True)(function)


async def test_a_function_that_is_not_where_it_says_is_a_failure_that_is_not_retried(tmp_path: Path) -> None:
    def function(step: Any) -> None: ...

    function.__module__, function.__qualname__ = functions.__name__, "gone"
    run = await ran(app_with(tmp_path, function), "max_retries=5")
    assert run.status is RunStatus.FAILED
    assert f"{functions.__name__} has no function 'gone'" in run.detail


@pytest.mark.parametrize(
    "answer", [b"", b"{}", b'{"lines": [], "raised": "x", "more": 1}', b'{"lines": 7}', b"[1", b"\xff"]
)
def test_an_answer_of_another_form_is_not_accepted(answer: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        msgspec.json.decode(answer, type=IsolatedReply)
