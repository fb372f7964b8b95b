"""Programs that a stand-in plays, and processes whose agents are such programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from onward.agents.prices import Prices, read_prices
from onward.agents.programs.handler import AgentSteps, AsksModels, ProgramHandler
from onward.agents.programs.program import KNOWN_PROGRAMS, LINES, Program
from onward.model.call import CallFinished
from onward.model.values import ALWAYS_PASSED, is_named
from onward.process import SystemSpawn
from onward.redact.redactor import NOTHING_SECRET, Redactor, cleaner_of
from onward.testing.clock import ManualClock, SeededDice
from tests.world import Process, World

STAND_IN = str(Path(__file__).with_name("stand_in.py"))
VARIABLES = {
    "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
    "ANTHROPIC_API_KEY": "sk-ant-own",
    "OPENAI_API_KEY": "sk-openai-own",
    "OTHER_TOKEN": "another",
}


@dataclass
class Played:
    """A program that prints what `script` says, one play for each start."""

    directory: Path
    name: str = "mine"
    format: str = LINES
    script: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = ()

    @property
    def program(self) -> Program:
        self.directory.mkdir(exist_ok=True, parents=True)
        (self.directory / "script.json").write_text(json.dumps(self.script))
        known = KNOWN_PROGRAMS.get(self.format, Program(self.name, self.format, ()))
        command = self.command or (sys.executable, STAND_IN, str(self.directory))
        return replace(known, name=self.name, command=command, **self.more)

    @property
    def starts(self) -> list[dict[str, Any]]:
        """What it was started with, each time."""
        ledger = self.directory / "ledger.jsonl"
        return [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []

    @property
    def prompts(self) -> list[str]:
        told = [start["stdin"] for start in self.starts]
        return [json.loads(one)["prompt"] for one in told] if self.format == LINES else told


async def at(
    world: World,
    *played: Played,
    models: AsksModels | None = None,
    prices: Prices | None = None,
    redactor: Redactor = NOTHING_SECRET,
    **more: Any,
) -> Process:
    """A process whose agents are these programs."""
    clock = more.setdefault("clock", ManualClock())
    handler = ProgramHandler(
        {one.name: one.program for one in played},
        SystemSpawn(cleaner=cleaner_of(lambda: redactor), linger_s=0.05, grace_s=0.2),
        prices or read_prices({}),
        clock,
        SeededDice(1),
        variables,
    )
    return await world.process(handlers={"codergen": AgentSteps(models, handler)}, redactor=redactor, **more)


def variables(names: tuple[str, ...]) -> Mapping[str, str]:
    return {name: value for name, value in VARIABLES.items() if is_named(name, (*ALWAYS_PASSED, *names))}


async def calls(process: Process, run_id: str = "run") -> list[CallFinished]:
    return [event for event in await process.events(run_id) if isinstance(event, CallFinished)]


def answering(text: str, session: str = "s-1", **more: Any) -> dict[str, Any]:
    """A play of our own format that answers."""
    return {
        "print": [
            {"type": "session", "id": session, "model": "tiny"},
            {"type": "text", "text": text},
            {"type": "usage", "input": 100, "output": 20, "cached": 40, "cost_usd": 0.0125},
            {"type": "result", "text": text, **more},
        ]
    }
