"""The pipelines that are measured, and engines to run them on."""

from __future__ import annotations

import asyncio
import os
import time

from onward.clock import SystemClock, SystemDice, SystemIds
from onward.engine.engine import Engine, Surroundings
from onward.engine.files.run_files import RunFiles
from onward.handlers.calls import CallAnswer, CallOptions
from onward.handlers.function import FunctionHandler
from onward.handlers.port import Handler, StepContext
from onward.model.call import Reserved, Usage
from onward.store.port.store import Store

KILOBYTE = 1_000


async def no_op(step: StepContext) -> None:
    """A step that does nothing: what is left is ours."""


async def speak(step: StepContext) -> dict[str, object]:
    """Hand the whole conversation back with a message more, as people naturally write it."""
    said = step.get("conversation", [])
    seed = int(step.run_id[-6:], 36) + len(said)
    text = "".join(chr(33 + (seed * 2654435761 + i * 40503) % 7919 % 90) for i in range(KILOBYTE))
    return {"conversation": [*said, {"role": "assistant", "text": text}]}


async def wait(step: StepContext) -> None:
    """A step that asks somebody and waits for the answer."""
    await asyncio.sleep(0.02)


async def ask(step: StepContext) -> None:
    """A step that makes one call of 50 ms, which is reserved in the scope of its project."""

    async def answer() -> CallAnswer:
        await asyncio.sleep(0.05)
        return CallAnswer(None, usage=Usage(input=10, output=5), cost_micro=1)

    scopes = tuple(scope for scope in step.scopes if scope.startswith("project/"))
    reserved = Reserved(scopes=scopes, tokens=100, cost_micro=10)
    await step.recorder.call("ask", answer, (), CallOptions(reserved=reserved))


def engine_on(store: Store, runs: str = os.devnull) -> Engine:
    """An engine with handlers that do as good as nothing; `runs` is where files go, if a step leaves any."""
    functions = {"noop": no_op, "speak": speak, "wait": wait, "stand": no_op, "ask": ask}
    return _engine(store, {kind: FunctionHandler(function) for kind, function in functions.items()}, runs)


def looping_engine(store: Store, visits: int, performed: list[float]) -> Engine:
    """An engine that counts `visits` of a loop, and notes when the step behind it is performed."""

    async def count(step: StepContext) -> dict[str, object]:
        number = step.get("count", 0) + 1
        return {"count": number, "more": "yes" if number < visits else "no"}

    async def note(step: StepContext) -> None:
        performed.append(time.perf_counter())

    return _engine(store, {"count": FunctionHandler(count), "noop": FunctionHandler(note)})


def custom_engine(store: Store, handlers: dict[str, Handler]) -> Engine:
    """An engine with these handlers, and steps that do nothing."""
    return _engine(store, {"noop": FunctionHandler(no_op), **handlers})


def _engine(store: Store, handlers: dict[str, Handler], runs: str = os.devnull) -> Engine:
    here = Surroundings(files=RunFiles(runs, store.identity, warn=_disk_was_touched))
    clock, ids, dice = SystemClock(), SystemIds(), SystemDice()
    return Engine(store, clock=clock, ids=ids, dice=dice, handlers=handlers, surroundings=here)


def _disk_was_touched(warning: str) -> None:
    """Steps that are functions leave no files, and must not pay for those of others. None may fail either."""
    raise AssertionError(warning)


def line(steps: int, kind: str = "noop", files: str = "") -> str:
    """`steps` nodes in a row; `files` says how each of them is kept on disk."""
    names = [f"n{number}" for number in range(steps)]
    more = f", files={files}" if files else ""
    nodes = "; ".join(f"{name} [type={kind}{more}]" for name in names)
    ends = "start [shape=Mdiamond]; exit [shape=Msquare]"
    return f"digraph line {{ {ends}; {nodes}; start -> {' -> '.join(names)} -> exit }}"


def loop(visits: int) -> str:
    """One node, visited again and again."""
    return (
        f"digraph loop {{ max_visits={visits + 10}; max_steps={3 * visits + 100}; "
        "start [shape=Mdiamond]; exit [shape=Msquare]; again [type=count]; hold [shape=hexagon]; "
        'start -> again; again -> again [condition="context.more=yes"]; '
        'again -> hold [condition="context.more=no"]; hold -> last [label="go"]; '
        "last [type=noop]; last -> exit }"
    )
