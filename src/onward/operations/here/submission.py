"""What a new run is made of, as words on this machine name it.

The directory of its commands, as a flag names it. Its pipeline: a file here, or a registered name. And a
simulation script to begin with, which has an entry for every node of a pipeline that can be simulated.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from onward.engine.control.create import Read, cast_of
from onward.engine.sources import Registry, near_file, read_source
from onward.errors import InvalidInput, NoDatabase, PipelineNotFound
from onward.machine.definition import AGENT, AGENT_VISITS, CONDITIONAL, TOOL, Definition, is_simulated
from onward.model.context import CURRENT_NODE, GRAPH, INTERNAL, OUTCOME, PREFERRED_LABEL
from onward.model.ids import can_be_registered
from onward.model.limits import VISITS
from onward.model.run import Simulation
from onward.operations.requests import AddPipeline, SubmitRun
from onward.pipeline.build import Pipeline
from onward.pipeline.condition import Clause
from onward.store.port.limits import Limits


def directory_of(cwd: str | None, *, is_here: bool = True) -> str:
    """The directory that `--cwd` names, as an absolute path; without it, the current one.

    With `is_here` it must exist: this process is to execute commands there.
    """
    if cwd is not None and not cwd.strip():
        raise InvalidInput("--cwd is empty; name a directory, or leave the flag out.")
    try:
        workdir = os.path.abspath(cwd or os.curdir)
    except FileNotFoundError:
        raise InvalidInput("the current directory is gone; change to another one.") from None
    if is_here and not os.path.isdir(workdir):
        raise InvalidInput(f"--cwd {cwd}: there is no such directory; create it, or name another.")
    return workdir


def missing_notice(workdir: str | None) -> str:
    """The notice that a queued run needs a directory that this machine does not have; else empty."""
    if workdir is None or os.path.isdir(workdir):
        return ""
    return f"the directory {workdir} does not exist on this machine; only a worker that has it claims the run"


def is_elsewhere(workdir: str) -> bool:
    """Whether a directory exists and is not the current one."""
    return os.path.isdir(workdir) and not os.path.samefile(workdir, os.curdir)


def is_registered_name(word: str) -> bool:
    """Whether a word means a registered pipeline, NAME or NAME@VERSION: there is no such file."""
    return can_be_registered(word) and not os.path.isfile(word)


def submission(word: str, **how: Any) -> SubmitRun:
    """A run of the pipeline in a file of this machine, or else of the registered one of this name."""
    if is_registered_name(word):
        return SubmitRun(pipeline=word, **how)
    # The path is kept absolute, so that a resume finds the file from another directory.
    return SubmitRun(source=read_source(word), file=word, path=os.path.abspath(word), **how)


async def shadowed_notice(registry: Registry, request: SubmitRun) -> str:
    """The notice that a file was taken which has the name of a registered pipeline; else empty."""
    if request.pipeline is not None or not can_be_registered(request.file):
        return ""
    found = await registry.store.pipelines.find(request.file.partition("@")[0])
    if found is None or found.enabled is None:
        return ""
    return f"{request.file} is a file here and a registered pipeline; the file is used"


async def ceilings(limits: Limits, request: SubmitRun, handlers: Collection[str], *, run: str = "") -> str:
    """The ceilings of a new run that asks models, in one line; else empty. `run` is its id, if it has one."""
    if AGENT not in handlers or request.simulation is not None:
        return ""
    (scope,) = await limits.read([f"run/{run}" if run else "run"])
    raised: dict[str, int | None] = {
        one.measure: one.value or None for one in request.raises if one.kind == "run"
    }
    visits, calls = raised.get(VISITS, AGENT_VISITS), raised.get("calls", scope.limit.calls or None)
    visits = visits and max(visits, AGENT_VISITS)
    said = [f"{calls:,} model requests"] if calls else []
    said += [f"{visits:,} visits to each agent without max_visits"] if visits else []
    return f"at most {' and '.join(said)}; for more: --raise run.calls=N or run.visits=N" if said else ""


def addition(file: str, **how: Any) -> AddPipeline:
    """The request that registers the pipeline in a file of this machine."""
    return AddPipeline(source=read_source(file), file=file, path=os.path.abspath(file), **how)


@contextmanager
def named(word: str | None) -> Iterator[None]:
    """Say of a name that is not registered that there is no such file either."""
    try:
        yield
    except NoDatabase as error:
        if word is None:
            raise
        meant = "".join(f"; did you mean {near}?" for near in near_file(word)) or "."
        nowhere = f"no database {error.place} that has registered pipelines"
        raise InvalidInput(f"there is no file {word} here, and {nowhere}{meant}") from None
    except PipelineNotFound as error:
        if word is None or error.newest is not None or error.removed_by:
            raise
        files = [file for file in near_file(word) if file != word]  # else it is no file
        raise PipelineNotFound(word, near=(*error.near, *files), is_no_file=True) from None


TOOL_OUTPUT = "tool.output"
_ENGINES_OWN = (OUTCOME, PREFERRED_LABEL, CURRENT_NODE)
_PREFIXES = (GRAPH, INTERNAL, "human.gate.", "parallel.", "stack.")


def script_template(pipeline: Pipeline, read: Read, *, real_tools: bool = False) -> dict[str, Any]:
    """A script in which every step succeeds. It sets what the first condition after a node asks for."""
    simulation, definition = Simulation(real_tools=real_tools), Definition(pipeline.graph)
    template: dict[str, Any] = {}
    for node, kinds in cast_of(pipeline, definition, read).kinds.items():
        kind = next((kind for kind in sorted(kinds) if is_simulated(simulation, kind)), None)
        if kind is not None:
            is_own = node in definition.graph.nodes
            asked = dict(_asked_after(definition, node)) if is_own else {}
            template[node] = [_tool_entry(asked) if kind == TOOL else _agent_entry(node, asked)]
    return template


def _tool_entry(asked: dict[str, str]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "exit_code": 0,
        "stdout": asked.pop(TOOL_OUTPUT, ""),
        "stderr": "",
        "delay_ms": 0,
    }
    return {**entry, "context_updates": asked} if asked else entry


def _agent_entry(node: str, asked: dict[str, str]) -> dict[str, Any]:
    return {
        "status": "success",
        "text": f"[simulated] {node} done",
        "context_updates": asked,
        "preferred_label": "",
        "delay_ms": 0,
    }


def _asked_after(definition: Definition, node_id: str) -> Iterator[tuple[str, str]]:
    """The values with which the first condition after a node holds, also after a conditional node."""
    edges = definition.graph.outgoing(node_id)
    through = [edge.target for edge in edges if definition.kind(edge.target) == CONDITIONAL]
    for edge in (*edges, *(edge for target in through for edge in definition.graph.outgoing(target))):
        found = [
            (_context_key(clause), clause.literal) for clause in edge.guard.clauses if clause.operator == "="
        ]
        asked = [(key, value) for key, value in found if _is_free(key)]
        if asked:
            yield from asked
            return


def _context_key(clause: Clause) -> str:
    return clause.key.removeprefix("context.")


def _is_free(key: str) -> bool:
    return key not in _ENGINES_OWN and not key.startswith(_PREFIXES)
