"""The log for machines: every line is one JSON object, says what it is about, and keeps no secrets."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.model.events import AttemptFailed, StepFinished, StepStarted, StepStatus
from onward.observe.log import JsonLines, about, current, log_events, without_secrets
from tests.conformance.drafts import creation, step


def line(message: str, *args: object, error: BaseException | None = None, **fields: Any) -> dict[str, Any]:
    """The line of one record, read back."""
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.Logger("onward.test").makeRecord(
        "onward.test", logging.WARNING, "f.py", 1, message, args, info, extra=fields
    )
    text = JsonLines(worker="w").format(record)
    assert "\n" not in text
    read: dict[str, Any] = json.loads(text)
    return read


def test_a_line_has_time_level_logger_message_and_what_it_is_about() -> None:
    found = line("run %s failed", "r1", run="r1", step="a#1", attempts=3, gates=("a", "b"))
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "warning",
        "logger": "onward.test",
        "message": "run r1 failed",
        "worker": "w",
        "run": "r1",
        "step": "a#1",
        "attempts": 3,
        "gates": ["a", "b"],
    }


async def test_work_inside_carries_what_it_is_about_also_in_tasks_and_threads() -> None:
    async def inside() -> dict[str, Any]:
        return line("in a task")

    with about(run="r1", pipeline="p"), about(step="a#1"):
        found = [line("here"), await asyncio.create_task(inside()), await asyncio.to_thread(line, "there")]
    assert {(one["run"], one["pipeline"], one["step"]) for one in found} == {("r1", "p", "a#1")}
    assert "run" not in line("outside")
    assert not current()


def test_an_exception_is_inside_the_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError as error:
        found = line("oh", error=error)["exception"]
    assert (found["type"], found["message"]) == ("ValueError", "two\nlines")
    assert "test_an_exception_is_inside_the_line" in found["trace"]


@given(st.text(), st.text(st.characters(categories=["Cs", "Cc", "Lu"])))
def test_whatever_is_said_the_line_is_json(message: str, value: str) -> None:
    assert line("%s", message, field=value)["level"] == "warning"


def test_a_value_that_json_cannot_hold_is_told_as_text() -> None:
    found = line("x", thing=sys, status=StepStatus.FAIL, nested={1: {2, 3}}, nothing=None)
    assert found["thing"].startswith("<module 'sys'")
    assert (found["status"], found["nested"], found["nothing"]) == ("fail", {"1": [2, 3]}, None)


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:hunter2@db.example:5432/runs",
        "cannot connect to postgres://me:hunter2@[::1]/runs: refused",
        "postgresql://me@db/runs?password=hunter2&sslmode=require",
        "host=db password=hunter2 user=me",
        "host=db password = 'hunter2' user=me",
    ],
)
def test_passwords_of_databases_are_never_in_a_line(text: str) -> None:
    assert "hunter2" not in without_secrets(text)
    found = line("%s", text, db=text, inside=[{"db": text}], error=RuntimeError(text))
    assert "hunter2" not in json.dumps(found)
    assert "me" in found["message"]


def test_an_address_without_a_password_is_left_as_it_is() -> None:
    for text in ("http://127.0.0.1:9464/metrics", "postgresql://me@db:5432/runs", "a: b@c"):
        assert without_secrets(text) == text


def test_what_was_committed_for_a_step_names_run_pipeline_step_and_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "onward.run")
    draft = creation("r1")[1]
    started, finished = step(draft)
    assert isinstance(started, StepStarted)
    assert isinstance(finished, StepFinished)
    failed = AttemptFailed(step=started.step, attempt=1, status=StepStatus.FAIL, reason="no", retry_at_us=1)
    log_events(draft.run, (started, failed, finished))
    found = [(one.levelname, one.getMessage(), vars(one)) for one in caplog.records]
    assert [(level, text) for level, text, _ in found] == [
        ("INFO", "step start#1 started"),
        ("WARNING", "step start#1 failed"),
        ("INFO", "step start#1 finished"),
    ]
    for _, _, fields in found:
        told = {name: fields[name] for name in ("run", "pipeline", "step", "attempt")}
        assert told == {"run": "r1", "pipeline": draft.run.pipeline, "step": "start#1", "attempt": 1}
    assert found[1][2]["reason"] == "no"
