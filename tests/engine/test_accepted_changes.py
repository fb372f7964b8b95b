"""An accepted change of the pipeline is checked for the run as it is when the change is written."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from onward.engine.control.requests import StartRequest
from onward.errors import Refused
from onward.model.run import RunStatus
from onward.store.port.log import Controlled, Decide, RunLog
from tests.conformance.faults import Around, FaultyStore
from tests.world import Process, World

TWO = """digraph two {
  start [shape=Mdiamond]; exit [shape=Msquare]
  first [shape=hexagon, label="One?"]; second [shape=hexagon, label="Two?"]
  c [prompt=x]; d [prompt=x]
  start -> first
  first -> second [label="[Y] Yes"]; first -> exit [label="[N] No"]
  second -> c [label="[Y] Yes"]; second -> d [label="[N] No"]
  c -> exit; d -> exit
}"""


class AnsweredFirst(Around[RunLog]):
    """A log in which somebody answers the open question just before the first request."""

    def __init__(self, part: RunLog, store: FaultyStore, asking: Process) -> None:
        super().__init__(part, store)
        self._asking, self.was_answered = asking, False

    async def control(self, run_id: str, *, since: int, append_id: str, decide: Decide) -> Controlled:
        if not self.was_answered:
            self.was_answered = True
            await self._asking.engine.answer(run_id, "Y", by="ann")
        return await self.part.control(run_id, since=since, append_id=append_id, decide=decide)


async def test_a_change_that_no_longer_fits_the_run_is_refused(world: World, tmp_path: Path) -> None:
    """The run has come to another question, which leads to a node that the new file lacks."""
    path, asking = tmp_path / "two.dot", await world.process()
    path.write_text(TWO)
    await asking.engine.start(asking.engine.sources.read(str(path)), StartRequest(run_id="run"))
    path.write_text(TWO.replace("c ->", "e ->").replace("c [", "e [").replace("-> c", "-> e"))
    log = partial(AnsweredFirst, asking=asking)
    process = await world.process(wrap=partial(FaultyStore, log=log))
    with pytest.raises(Refused, match="run needs: c"):
        await process.resume(accept_changes=True)
    assert isinstance(process.store.log, AnsweredFirst)
    assert process.store.log.was_answered
    assert "PipelineChanged" not in await asking.kinds()
    assert (await asking.engine.answer("run", "Y", by="ann")).run.status is RunStatus.COMPLETED
