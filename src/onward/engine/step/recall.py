"""The preamble of a step: from the end of the log, read only when the step asks."""

from __future__ import annotations

from onward.engine.log.journal import Journal
from onward.engine.log.reader import Folded
from onward.errors import InvalidInput
from onward.model.events import StepStarted
from onward.model.ids import branch_of
from onward.pipeline.graph import Graph
from onward.pipeline.rules.attributes import DEFAULT_FIDELITY, FIDELITIES
from onward.read.past import STYLES, past_of, preamble
from onward.store.codec import unseal

# A bounded end: a preamble is short, and its cost must not grow with the run's age.
EVENTS_READ = {"compact": 250, "summary:low": 250, "summary:medium": 500, "summary:high": 1_000}


async def recall(journal: Journal, graph: Graph, folded: Folded, started: StepStarted, mode: str) -> str:
    """The summary of the run for the step that `started`, with its own fidelity or another."""
    mode = mode or started.fidelity or DEFAULT_FIDELITY
    if mode not in FIDELITIES:
        raise InvalidInput(f"{mode!r} is not a fidelity; use one of {', '.join(FIDELITIES)}.")
    if mode not in STYLES:
        return ""
    records = await journal.tail(folded, EVENTS_READ.get(mode, 0))
    events = [unseal(record) for record in records]
    is_whole = len(records) == folded.position.seq
    past = past_of(graph.goal, folded.run, branch_of(started.step), events, is_whole=is_whole)
    return preamble(mode, past)
