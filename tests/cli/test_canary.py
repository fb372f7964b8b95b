"""A secret goes in wherever something can go in, and is found nowhere afterwards."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from tests.cli.shell import Done, Shell
from tests.notify.receiver import Answer, Receiver, receiving
from tests.redact import canary
from tests.redact.canary import CANARY, NAME, PROVIDER_KEY

APP = """
import os
from onward import Onward, Result
from onward.agents.model import ModelFailed
from onward.agents.model import ModelRequest, user
from onward.config import load_settings
from onward.wiring import open_models

app = Onward()
SECRET = os.environ["CANARY_TOKEN"]

@app.handler("leak")
async def leak(step):
    step.log("a line " + "x" * 985 + SECRET)
    step.artifacts.store("text", f"of {SECRET}", "artifact " + SECRET)
    step.artifacts.store("value", "value", {SECRET: [SECRET]})
    step.artifacts.store("bytes", "bytes", b"\\xff" + SECRET.encode() + b"\\xfe")
    stored = await step.effect("fetch", lambda: {"token": SECRET})
    assert SECRET not in str(stored), "what is stored is what every caller gets"
    updates = {"out": SECRET, "deep": [{"a": {SECRET: SECRET}}], "large": (SECRET + " ") * 500}
    return Result(
        context_updates=updates, notes=SECRET, response=f"answer {SECRET} " * 400, log=("y" * 990 + SECRET,)
    )

@app.handler("calls")
async def calls(step):
    answers = [await step.call(f"c{n}", lambda n=n: ANSWERS[n]) for n in range(len(ANSWERS))]
    assert SECRET not in str(answers) and SECRET.encode() not in answers[1]
    try:
        await step.call("fails", fails)
    except ValueError as error:
        assert str(error) == SECRET, "the caller gets its own error"
    return {"answers": str(answers)}

ANSWERS = [{SECRET: [SECRET]}, b"\\xff" + SECRET.encode(), f"{SECRET} " * 500]

def fails():
    raise ValueError(SECRET)

@app.handler("asks")
async def asks(step):
    models = open_models(load_settings(), step.redactor)
    try:
        async for piece in models.stream(ModelRequest(model="acme:small", messages=(user(REFUSED),))):
            step.log(str(piece))
    except ModelFailed as failed:
        return {"said": f"{failed} {failed.failure}"}
    finally:
        await models.close()

REFUSED = "refuse me"

@app.handler("boxed", isolated=True)
def boxed(step):
    print("printed " + SECRET)
    step.log(SECRET)
    return {"boxed": SECRET}

@app.handler("boom")
async def boom(step):
    raise ValueError("z" * 9000 + " cannot log in with " + SECRET)
"""

TOOL = r"""
half=${CANARY_TOKEN%??????????}
printf 'split: %s' "$half"; printf '%s\n' "${CANARY_TOKEN#"$half"}"
printf '%s' "$half" >&2; printf '%s\n' "${CANARY_TOKEN#"$half"}" >&2
printf '%s' "$CANARY_TOKEN" | base64; printf 'user:%s' "$CANARY_TOKEN" | base64
mkdir -p "$ONWARD_STEP_DIR/artifacts"
printf '%s' "$CANARY_TOKEN" > "$ONWARD_STEP_DIR/artifacts/made.txt"
printf '{"outcome": "success", "notes": "%s"}' "$(printf %s "$CANARY_TOKEN" | sed 's/["\\]/\\&/g')" \
  > "$ONWARD_STEP_DIR/status.json"
"""
FAILING = 'printf "no access with %s" "$CANARY_TOKEN" >&2; exit 3'

PIPELINE = """
digraph leaky {
  start [shape=Mdiamond]
  exit [shape=Msquare]
  tool [shape=parallelogram, tool_command="sh tool.sh"]
  fails [shape=parallelogram, tool_command="sh failing.sh"]
  leak [type=leak]
  boxed [type=boxed]
  calls [type=calls]
  asks [type=asks]
  agent [shape=box, prompt="Use $token, $out and $tool.output"]
  ask [shape=hexagon, label="Is $out right?", human.type=freeform]
  boom [type=boom]
  start -> tool -> fails
  fails -> leak [condition="outcome=fail"]
  fails -> exit [condition="outcome=success"]
  leak -> boxed -> calls -> asks -> agent -> ask -> boom -> exit
}
"""


NOTIFY = r"""
cat >> told.jsonl
printf 'cannot tell it with %s' "$CANARY_TOKEN" >&2
exit 3
"""
REFUSED = "refuse me"
WORKER = ("worker", "--until-idle", "--concurrency", "1", "--log-format", "json")
GIVEN = frozenset({"provider.key", "values.json", "many.jsonl"})
"""The files that hold the secrets from the beginning."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Told of runs, and answers with a secret."""
    with receiving() as receiver:
        receiver.answer = lambda: (403, {}, f"{'x' * 275} {CANARY}".encode())
        yield receiver


@pytest.fixture
def endpoint() -> Iterator[Receiver]:
    """A model that repeats its key, in answers and in errors."""
    with receiving() as endpoint:

        def answer() -> Answer:
            key = endpoint.headers[-1]["authorization"].removeprefix("Bearer ")
            if REFUSED in endpoint.raw[-1]:
                body = {"error": {"message": f"the key {key} is wrong", "code": f"for {CANARY}"}}
                return 401, {"content-type": "application/json"}, json.dumps(body).encode()
            pieces = [f"your key is {key[:9]}", key[9:], f" and {CANARY}"]
            events = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
            end: Any = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
            told = [*map(json.dumps, [*events, end]), "[DONE]"]
            body_of = "".join(f"data: {one}\n\n" for one in told).encode()
            return 200, {"content-type": "text/event-stream"}, body_of

        endpoint.answer = answer
        yield endpoint


@pytest.fixture
def leaky(any_shell: Shell, receiver: Receiver, endpoint: Receiver) -> Shell:
    """A shell whose environment has the secret, and steps that spread it."""
    shell = any_shell
    base_url = endpoint.url.partition("/hook")[0] + "/v1"
    provider = f'[providers.acme]\nbase_url = "{base_url}"\nkey = "file:provider.key"\n'
    shell.write("onward.toml", f'{provider}[notify]\nurl = "{receiver.url}"\n')
    shell.write("command.toml", f'{provider}[notify]\ncommand = "sh notify.sh"\nenv = ["{NAME}"]\n')
    shell.write("provider.key", PROVIDER_KEY)
    shell.write("notify.sh", NOTIFY)
    shell.write("values.json", json.dumps({"token": CANARY}))
    shell.write("many.jsonl", json.dumps({"inputs": {"token": CANARY}, "run_id": "many"}) + "\n")
    shell.environment |= {NAME: CANARY, "ONWARD_TOOL_ENV": NAME, "ONWARD_APP": "leaky:app"}
    shell.environment["ONWARD_MODEL"] = "acme:small"
    shell.write("leaky.py", APP)
    shell.write("tool.sh", TOOL)
    shell.write("failing.sh", FAILING)
    shell.write("leaky.dot", PIPELINE)
    return shell


def spread(shell: Shell) -> list[Done]:
    """Two runs that get the secret from everywhere, and everything that there is to see of them."""
    token = f"token={CANARY}"
    encoded = {"url": quote(CANARY, safe=""), "b64": base64.b64encode(CANARY.encode()).decode()}
    nested = f"more:={json.dumps(encoded)}"
    said = [
        shell("run", "leaky.dot", "--run-id", "one", "--set", token, "--set", nested, "--verbose"),
        shell.inside("steer", "one", f"use {CANARY}"),
        shell.inside("answer", "one", f"it is {CANARY}"),
        shell.inside("cancel", "one", "--reason", f"because of {CANARY}"),
        shell.inside("submit", "leaky.dot", "--run-id", "two", "--set", token),
        shell.inside("submit", "leaky.dot", "--run-id", "three", "--set-file", "values.json", "--json"),
        shell.inside("submit", "leaky.dot", "--from-jsonl", "many.jsonl", "--json"),
        shell.inside("notifications", "--json"),
        notified_by_command(shell),
        shell(*WORKER),
        shell.inside("answer", "two", f"it is {CANARY}", "--no-run"),
        shell(*WORKER),
        shell("effect", "key", "--", "sh", "-c", f'printf %s "${NAME}"; printf %s "${NAME}" >&2'),
        shell.inside("effect", "key", "--json"),
        shell.inside("run", "leaky.dot", "--bogus", CANARY),
        shell.inside("show", CANARY),
        shell.inside("validate", "leaky.dot"),
        shell.inside("export", "--all", "--out", "export.jsonl"),
        shell.inside("export", "--all", "--out", "export.zst"),
        shell.inside("verify"),
    ]
    said += [shell.inside("notifications"), shell.inside("notifications", "--json")]
    for run in ("one", "two"):
        for words in (("show",), ("events",), ("logs",), ("receipts",), ("checkpoints",), ("artifacts",)):
            said += [shell.inside(*words, run), shell.inside(*words, run, "--json")]
    return said


def notified_by_command(shell: Shell) -> Done:
    """From now on, a command is told."""
    (shell.directory / "command.toml").rename(shell.directory / "onward.toml")
    return shell.inside("validate", "leaky.dot")


@pytest.mark.slow
def test_a_secret_is_found_nowhere(leaky: Shell, receiver: Receiver, endpoint: Receiver) -> None:
    """S16: it went in by the environment, inputs, output, errors, files, answers and instructions."""
    leaky.inside("effect", "none")  # creates the database
    with canary.kept_open(leaky.db):
        said = spread(leaky)
        kept = canary.directory(leaky.directory, without=GIVEN)
    printed = {f"command {at}": f"{done.out}{done.err}".encode() for at, done in enumerate(said)}
    stored = canary.database(leaky.db)
    told = {"the receiver": "".join(receiver.raw).encode()}
    assert canary.look({**printed, **kept, **stored, **told}) == []
    assert [done.code for done in said[:14]] == [75, 0, 1, *[0] * 11]
    assert PROVIDER_KEY in endpoint.headers[0]["authorization"]
    assert (
        "your key is [redacted provider.key] and [redacted" in leaky.read("one")["context"]["last_response"]
    )
    assert b"cannot tell it with [redacted" in b"".join(stored.values())
    assert b"cannot log in with [redacted" in kept["told.jsonl"] + told["the receiver"]
    assert {"stdout.log", "prompt.md", "response.md", "status.json", "made.txt"} <= {
        name.rpartition("/")[2] for name in kept
    }
    everything = b"".join((*printed.values(), *stored.values()))
    assert b"[redacted provider.key]" in everything
    assert b"HTTP 403" in everything
    assert everything.count(f"[redacted {NAME}]".encode()) > 100
    assert {event["kind"] for event in leaky.log("two")} >= {"GateDecided", "StepFinished", "AttemptFailed"}


def test_the_look_for_the_canary_finds_it_wherever_it_is(any_shell: Shell) -> None:
    """With redaction off, it is in the database, in files and in what is printed."""
    shell = any_shell
    shell.write("onward.toml", "[redact]\noff = true\n")
    shell.environment |= {NAME: CANARY, "ONWARD_TOOL_ENV": NAME}
    shell.write("say.sh", f'printf %s "${NAME}"')
    shell.write("say.dot", "digraph g { start [shape=Mdiamond]; exit [shape=Msquare]; "
                'say [shape=parallelogram, tool_command="sh say.sh"]; start -> say -> exit }')  # fmt: skip
    done = shell("run", "say.dot", "--run-id", "one", "--set", f"token={CANARY}", "--verbose")
    assert done.code == 0, done.err
    assert canary.look({"terminal": done.out.encode()})
    assert canary.look(canary.directory(shell.directory))
    assert canary.look(canary.database(shell.db))
