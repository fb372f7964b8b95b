"""A graph as a step of a flow: a run of its own, whose context the flow gets when it has completed.

The engine creates that run, executes it and waits for it (`engine.flow_child`). How it ended is recorded as
the answer of the call.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec

from onward.errors import GraphFailed, InvalidInput
from onward.flows.define import checked_name
from onward.flows.running import FlowRun, Parked, asked_with, here, scope_here, step_failed
from onward.handlers.calls import CallOptions, ChildAsked, ChildEnded
from onward.model.call import CallKind
from onward.model.context import check_value
from onward.model.stored import as_stored

RUN = CallKind.RUN.value
GRAPH = "graph "
"""Before the path or name of a graph that a test plays."""


class GraphResult(msgspec.Struct, frozen=True):
    """The result of a completed graph: its run and its final context."""

    run_id: str
    context: dict[str, Any]

    def __getitem__(self, key: str) -> Any:
        """A value of the context."""
        return self.context[key]


async def graph(
    pipeline: str, inputs: Mapping[str, Any] | None = None, *, name: str = "graph"
) -> GraphResult:
    """Run a graph to its end: `result = await graph("site.dot", {"topic": "durable"})`.

    `pipeline` is a path relative to the flow's file, its text (`digraph …`), or a registered NAME or
    NAME@VERSION. `inputs` become values of its context. It is a separate run, created only once, with
    its own log, gates and statuses. `name` begins the key of the call. Raises StepFailed if it fails or is
    cancelled; while it waits for a person, so does the flow.
    """
    scope = scope_here("graph(…)")
    flow = scope.flow
    assert flow is not None
    checked_name(name, "a graph")
    check_value(pipeline, f"the pipeline of graph {name!r}")
    written: object = pipeline
    if not isinstance(written, str) or not written.strip():
        raise InvalidInput(f"graph {name!r} has no pipeline; pass a path, its text, or a registered name.")
    values = {key: as_stored(one, f"{key!r} of graph {name!r}") for key, one in (inputs or {}).items()}
    asked = asked_with(name, RUN, {"pipeline": pipeline, "inputs": values})
    key, past = flow.begin(scope, asked)
    if past is not None and flow.is_answer(scope, past):
        return await flow.replayed(scope, past, GraphResult)  # type: ignore[no-any-return]
    work = flow.plays(GraphResult, (values,), f"{GRAPH}{pipeline}", f"{GRAPH}{key}")
    if work is None:
        child = ChildAsked(
            key=key,
            pipeline=pipeline,
            values=values,
            inputs=asked.inputs,
            patches=past.patches if past is not None else scope.patches,
            started=past.value["run"] if past is not None and past.value else "",
            fails=past is not None and bool(past.error),
            hooks=_Hooks(flow, key),
        )
        ended = await _ended(flow, key, child)

        async def work() -> Any:
            return _answer(ended)

    options = CallOptions(type=RUN, name=name, inputs=asked.inputs, about=asked.about)
    answered = await flow.live(scope, key, work, options, past)
    if answered.error:
        raise step_failed(key, answered.error) from answered.cause
    return flow.fitting(answered.value, GraphResult, key, 0)  # type: ignore[no-any-return]


async def _ended(flow: FlowRun, key: str, child: ChildAsked) -> ChildEnded:
    """How the run ended. What it executes here is outside the flow."""
    token = here.set(None)
    try:
        return await flow.recorder.child(flow.step, child)
    except asyncio.CancelledError:
        raise flow.cancelled(key) from None
    except (KeyboardInterrupt, GeneratorExit):  # of the process, or of the flow itself
        raise
    except BaseException as error:  # the attempt or the store is in trouble, not the graph
        raise flow.stop(error) from None
    finally:
        here.reset(token)


def _answer(ended: ChildEnded) -> dict[str, Any]:
    if ended.failure:
        raise GraphFailed(ended.failure)
    return {"run_id": ended.run_id, "context": dict(ended.context)}


class _Hooks:
    """What the flow does around the run of one call."""

    def __init__(self, flow: FlowRun, key: str) -> None:
        self._flow, self._key = flow, key

    @property
    def is_ending(self) -> bool:
        """Whether the flow makes no more calls."""
        return self._flow.ended is not None or self._flow.is_cancelled

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """The run is executed here inside; the flow does not end before it has stopped."""
        if self.is_ending:
            raise asyncio.CancelledError
        with self._flow.under_way():
            yield

    @asynccontextmanager
    async def parked(
        self, run: str, says: str, until_us: int | None, *, is_stopped: bool
    ) -> AsyncIterator[None]:
        """The branch waits inside for the run. When every branch waits, the attempt ends."""
        waits = Parked(says, until_us, run=run, is_stopped=is_stopped)
        async with self._flow.parked(self._key, waits):
            yield
