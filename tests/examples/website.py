"""The website builder in a directory of its own, at a scripted model."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from onward.testing.model_endpoint import read_ledger
from onward.testing.script import ModelScript, ScriptedReply, ScriptRule, read_script
from tests.cli.shell import Shell

WEBSITE = Path(__file__).parent.parent.parent / "examples/website"
MESSAGE = "Build me a landing page for my bakery"
BUILD = ("--set", "intent=build", "--set", "scope=full", "--set", f"user_message={MESSAGE}")
NEVER = ScriptedReply(text="This never comes to its end.", break_after=2, break_with="stall")


def module(name: str) -> ModuleType:
    """A file of the example as a module."""
    spec = importlib.util.spec_from_file_location(name, WEBSITE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found  # one of them imports another
    spec.loader.exec_module(found)
    return found


def script(*before: ScriptRule, without: Sequence[str] = ()) -> ModelScript:
    """The example's script, with rules before its own, and without those that contain a text."""
    shipped = read_script((WEBSITE / "script.json").read_bytes(), where="script.json")
    kept = [rule for rule in shipped.rules if not any(text in rule.contains for text in without)]
    return ModelScript(rules=(*before, *kept))


@contextmanager
def playing(shell: Shell, played: ModelScript) -> Iterator[Path]:
    """The builder in the shell's directory, and a model that plays a script; gives the model's ledger."""
    directory = shell.directory / "bakery"
    module("begin").begin(directory)
    shell.directory = directory
    ledger = directory / "requests.jsonl"
    (directory / "script.json").write_bytes(msgspec.json.encode(played))
    command = [sys.executable, "-m", "onward.testing.model_endpoint", str(directory / "script.json")]
    with subprocess.Popen([*command, "--ledger", str(ledger)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            shell.environment |= {"OPENAI_BASE_URL": address, "ONWARD_MODEL": "openai:scripted"}
            yield ledger
        finally:
            process.terminate()


def requests(ledger: Path) -> dict[str, int]:
    """How often each request reached the model."""
    return Counter(entry.idempotency_key for entry in read_ledger(str(ledger)))


def agents(view: dict[str, Any]) -> list[str]:
    """The agents that a run has started, in the order of their first steps."""
    started = [step["node"] for step in view["steps"] if step["tries"]]
    return [node for node in dict.fromkeys(started) if node not in ("brief", "problems", "check", "version")]


def git(shell: Shell, *words: str) -> str:
    """What git says about the site."""
    command = ["git", "-C", str(shell.directory / "site"), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
