"""Which program a node wants, and what one of its turns reserves."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from blake3 import blake3

from onward.agents.model.request import ModelRequest, user
from onward.agents.prices import Prices
from onward.agents.programs.formats import model_of
from onward.agents.programs.program import Program
from onward.agents.programs.trouble import missing
from onward.agents.step.contract import instructions
from onward.agents.tokens import estimate_tokens
from onward.errors import InvalidInput
from onward.handlers.port import StepContext
from onward.model.call import Reserved
from onward.pipeline.graph import Node

ATTRIBUTE = "agent_program"
COMMAND = "command:"


class Wanted(msgspec.Struct, frozen=True):
    """A program, and the model that it is told to ask; empty leaves that to the program."""

    program: Program
    model: str

    @property
    def name(self) -> str:
        """How calls name who answers."""
        return f"{self.program.name}:{self.model}" if self.model else self.program.name

    def definition(self, step: StepContext) -> str:
        """The hash of what the step is: its program, and what it asks."""
        contract = instructions(step.graph.outgoing(step.node.id))
        identity = f"program\0{self.program.name}\0{self.model}\0{step.node.instruction}\0{contract}"
        return blake3(identity.encode()).hexdigest()


def wanted_by(node: Node, programs: Mapping[str, Program], path: str | None = None) -> Wanted:
    """What a node wants; InvalidInput if nobody has it. With `path`, the program must be there."""
    name = node.text(ATTRIBUTE)
    if name.startswith(COMMAND):
        command = name.removeprefix(COMMAND).split()
        raise InvalidInput(
            f"node {node.id!r} spells out the command of its program; a pipeline only names programs. Write "
            f"command = {command} under [programs.NAME] in onward.toml, and agent_program=NAME here."
        )
    program = programs.get(name)
    if program is None:
        raise InvalidInput(
            f"node {node.id!r} wants the program {name!r}, which is not known; write one of "
            f"{', '.join(sorted(programs))}, or describe it under [programs.{name}] in onward.toml."
        )
    if "allowed_tools" in node.written:  # those of the graph are for its models
        raise InvalidInput(
            f"node {node.id!r} has allowed_tools, but the program {name} has tools of its own; "
            f"limit them in arguments of [programs.{name}] in onward.toml, and leave allowed_tools out."
        )
    if path is not None and not is_found(program, path):
        raise InvalidInput(f"node {node.id!r} needs it: {missing(program, 'was not found')}")
    return Wanted(program, model_of(program, node.id, model=node.llm_model, provider=node.llm_provider))


def is_found(program: Program, path: str) -> bool:
    """Whether the program can be started, as far as its file tells."""
    return shutil.which(program.command[0], path=path) is not None


def reservation(step: StepContext, wanted: Wanted, prompt: str, prices: Prices, now_us: int) -> Reserved:
    """What a turn reserves: one call, and its prompt. What the program makes of it cannot be known before.

    A program whose cost will not be known may not begin under a limit on cost.
    """
    program = wanted.program
    price = prices.find(f"{program.provider or program.name}:{wanted.model}") if wanted.model else None
    is_priced = program.reports_cost or price is not None
    day = datetime.fromtimestamp(now_us / 1_000_000, UTC).date().isoformat()
    return Reserved(
        scopes=(*step.scopes, f"day/{day}"),
        tokens=max(1, estimate_tokens(ModelRequest(model=wanted.name, messages=(user(prompt),)))),
        cost_micro=1 if is_priced else 0,
        calls=1,
        is_priced=is_priced,
    )
