"""What a step in doubt left is found when somebody has to decide, and handed on when they say: go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onward.engine.control.requests import Resume
from onward.engine.files.run_files import RunFiles
from onward.engine.leftovers import Leftovers, view_left
from onward.errors import Refused
from onward.handlers.port import StepContext
from onward.handlers.room import PreviousAttempt
from onward.handlers.shell import step_environment
from onward.model.result import Assessment, Left, Result
from onward.model.run import RunStatus
from onward.receipts.folder import Folder
from onward.store.port.leases import Leases
from onward.store.port.store import Store
from onward.testing.clock import ManualClock
from tests.conformance.faults import Around, Died, FaultyStore
from tests.conformance.handlers import Act, Doorway
from tests.engine.test_parallel import fan
from tests.engine.test_resume_doors import crashed, refusal
from tests.worker.test_registration import until_so
from tests.world import Process, World, line

DOUBTFUL = line("a", "pay", "b", pay="repeatable=false, max_retries=2, files=full")
IN_A_CENTURY_US = 4_800_000_000_000_000


def on_disk(tmp_path: Path) -> Callable[[Store], RunFiles]:
    return lambda store: RunFiles(str(tmp_path / "runs"), store.identity, warn=lambda text: None)


async def dead(world: World, tmp_path: Path, act: Act, source: str = DOUBTFUL, **start: Any) -> Process:
    """A process that looks at a run whose own process died in `pay`, or where `act` made it die."""
    dying = await world.process({"pay": [act]}, files=on_disk(tmp_path), clock=ManualClock(IN_A_CENTURY_US))
    with pytest.raises(Died):
        await dying.start(source, **start)
    await dying.die()
    return await world.process(files=on_disk(tmp_path), clock=ManualClock(IN_A_CENTURY_US))


async def found(process: Process) -> Left:
    """What the step in doubt left, once PostgreSQL has noticed that its process is gone."""

    async def is_noticed() -> bool:
        holder = (await process.load()).holder
        return holder is None or not holder.is_alive

    await until_so(is_noticed)
    (left,) = await process.engine.leftovers.of(await process.load())
    return left


async def write_and_die(step: StepContext) -> Result:
    assert step.directory is not None
    write(Path(step.directory))
    raise Died("here")


def write(directory: Path) -> None:
    (directory / "transcript.md").write_text("I have paid half of it")
    (directory / "artifacts").mkdir()
    (directory / "artifacts" / "receipt.txt").write_text("1/2")


async def test_a_step_that_left_nothing_where_all_can_be_seen_is_clean(world: World, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    process = await dead(world, tmp_path, Died("here"), workdir=str(tmp_path / "work"))
    left = await found(process)
    assert (left.assessment, left.unseen) == (Assessment.CLEAN, ())
    assert [file.path for file in left.files] == ["prompt.md"]
    assert (
        left.began_at_us
        == [record.at_us for record in await process.log() if record.kind == "StepStarted"][-1]
    )


async def test_files_in_its_directory_make_it_partial(world: World, tmp_path: Path) -> None:
    left = await found(await dead(world, tmp_path, write_and_die))
    assert left.assessment is Assessment.PARTIAL
    assert left.directory == str(tmp_path / "runs" / "run" / "pay" / "1")
    assert [(file.path, file.bytes) for file in left.files if file.path != "prompt.md"] == [
        ("artifacts/receipt.txt", 3),
        ("transcript.md", 22),
    ]


async def test_files_changed_where_it_works_make_it_partial(world: World, tmp_path: Path) -> None:
    """The clock of the run is in 2023, so whatever is there has changed since."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "paid.txt").write_text("paid")
    dying = await world.process({"pay": [Died("here")]})
    with pytest.raises(Died):
        await dying.start(DOUBTFUL, workdir=str(tmp_path / "work"))
    await dying.die()
    left = await found(await world.process())
    assert (left.assessment, left.place) == (Assessment.PARTIAL, str(tmp_path / "work"))
    assert [file.path for file in left.changed] == ["paid.txt"]


async def test_an_effect_that_was_begun_makes_it_partial(world: World, tmp_path: Path) -> None:
    async def charge_and_die(step: StepContext) -> Result:
        await step.effect("quote", lambda: 7)

        async def die() -> None:
            raise Died("between")

        await step.effect("charge", die)
        return Result.success()

    left = await found(await dead(world, tmp_path, charge_and_die))
    assert left.assessment is Assessment.PARTIAL
    assert [(effect.key, effect.state) for effect in left.effects] == [
        ("charge", "in_doubt"),
        ("quote", "finished"),
    ]


async def test_without_files_and_a_directory_to_look_at_it_is_unknown(world: World) -> None:
    await crashed(world, DOUBTFUL, at="pay")
    left = await found(await world.process())
    assert left.assessment is Assessment.UNKNOWN
    assert left.unseen == ("there is no directory for runs here", "its working directory is not known here")


async def test_a_step_of_another_machine_is_unknown(world: World, tmp_path: Path) -> None:
    """The directories of the same names on this one are not its."""

    class Elsewhere(Around[Leases]):
        @property
        def owner(self) -> str:
            return "7@elsewhere/proof"

    process = await dead(world, tmp_path, write_and_die)
    leftovers = Leftovers(FaultyStore(process.store, leases=Elsewhere), Folder(str(tmp_path / "runs")))
    (left,) = await leftovers.of(await process.load())
    assert (left.assessment, left.files, left.directory) == (Assessment.UNKNOWN, (), None)
    assert left.unseen[0].startswith("it ran on ")


async def test_the_call_that_was_open_is_named(world: World, tmp_path: Path) -> None:
    source = line("pay", pay='shape=parallelogram, tool_command="./pay.sh --now", repeatable=false')
    left = await found(await dead(world, tmp_path, Died("here"), source))
    assert (left.handler, left.command) == ("tool", "./pay.sh --now")


async def test_the_beginning_of_the_step_counts_and_not_the_claim_that_stopped_it(
    world: World, tmp_path: Path
) -> None:
    """A sweep claims the run to stop it; the step is still that of the process before."""
    process = await dead(world, tmp_path, write_and_die)
    await process.engine.sweep()
    folded = await process.load()
    assert (folded.run.status, folded.run.reason) == (RunStatus.INTERRUPTED, "in_doubt")
    assert "pay#1 was cut off" in folded.run.detail
    assert folded.run.token > folded.run.open_steps["pay#1"].token
    left = await found(process)
    assert (left.assessment, left.attempt) == (Assessment.PARTIAL, 1)
    assert left.directory is not None


async def test_nothing_is_in_doubt_while_its_process_is_at_it(world: World) -> None:
    door = Doorway()
    process = await world.process({"pay": [door]})
    running = asyncio.create_task(process.start(DOUBTFUL))
    await door.entered()
    other = await world.process()
    assert await other.engine.leftovers.of(await other.load()) == ()
    door.open()
    assert (await running).status is RunStatus.COMPLETED


async def test_a_plain_resume_is_refused_with_what_was_left(world: World, tmp_path: Path) -> None:
    process = await dead(world, tmp_path, write_and_die)
    refused = await refusal(process)
    assert refused.code == "in_doubt"
    assert refused.details["left"] == [view_left(await found(process))]
    assert refused.details["left"][0]["assessment"] == "partial"
    with pytest.raises(Refused) as previewed:
        await process.engine.preview_resume("run", Resume())
    assert previewed.value.details == refused.details


async def test_a_preview_shows_what_was_left(world: World, tmp_path: Path) -> None:
    process = await dead(world, tmp_path, write_and_die)
    seen = await process.engine.preview_resume("run", Resume(action="continue"))
    assert seen.left == (await found(process),)


class Looked:
    """An act that notes what its step is given."""

    def __init__(self, result: Result | None = None) -> None:
        self.left: list[PreviousAttempt | None] = []
        self.preambles: list[str] = []
        self.environments: list[dict[str, str]] = []
        self._result = result or Result.success()

    async def __call__(self, step: StepContext) -> Result:
        self.left.append(step.left)
        self.preambles.append(await step.preamble())
        self.environments.append(step_environment(step))
        return self._result


async def test_a_continued_step_is_given_what_the_attempt_before_left(world: World, tmp_path: Path) -> None:
    process = await dead(world, tmp_path, write_and_die)
    looked = Looked()
    process.agent.script["pay"] = [looked]
    assert (await process.resume(action="continue")).status is RunStatus.COMPLETED
    (left,), where = looked.left, str(tmp_path / "runs" / "run" / "pay" / "1")
    assert left is not None
    assert (left.directory, left.response) == (where, "I have paid half of it")
    assert left.artifacts == {"receipt.txt": f"{where}/artifacts/receipt.txt"}
    (environment,) = looked.environments
    assert (environment["ONWARD_CONTINUED"], environment["ONWARD_LEFT_DIR"]) == ("1", where)
    assert environment["ONWARD_STEP_DIR"] != where


async def test_an_agent_that_goes_on_is_told_behind_its_preamble(world: World, tmp_path: Path) -> None:
    process = await dead(world, tmp_path, write_and_die)
    looked = Looked()
    process.agent.script["pay"] = [looked]
    await process.resume(action="continue")
    (told,) = looked.preambles
    account, _, rest = told.partition("An earlier attempt of this step was cut off.")
    assert "a: success" in account
    assert rest.endswith("I have paid half of it")


async def test_a_step_that_is_made_again_is_given_nothing(world: World, tmp_path: Path) -> None:
    process = await dead(world, tmp_path, write_and_die)
    looked = Looked()
    process.agent.script["pay"] = [looked]
    await process.resume(action="retry")
    assert looked.left == [None]
    assert "cut off" not in looked.preambles[0]
    assert not {"ONWARD_CONTINUED", "ONWARD_LEFT_DIR"} & looked.environments[0].keys()


async def test_the_step_behind_a_continued_one_is_given_nothing(world: World, tmp_path: Path) -> None:
    process = await dead(world, tmp_path, write_and_die)
    looked = Looked()
    process.agent.script |= {"pay": [Result.success()], "b": [looked]}
    await process.resume(action="continue")
    assert looked.left == [None]


async def test_a_continued_step_that_fails_once_more_still_finds_what_is_there(
    world: World, tmp_path: Path
) -> None:
    """The attempt between left nothing of its own, and must not hide what the first one left."""
    process = await dead(world, tmp_path, write_and_die)
    looked = Looked(Result.retry("busy"))
    process.agent.script["pay"] = [looked]
    await process.resume(action="continue")
    assert len(looked.left) > 1
    assert {left.response for left in looked.left if left is not None} == {"I have paid half of it"}


async def test_a_continued_step_without_files_knows_only_that(world: World) -> None:
    await crashed(world, DOUBTFUL, at="pay")
    process, looked = await world.process(), Looked()
    process.agent.script["pay"] = [looked]
    await process.resume(action="continue")
    assert looked.left == [PreviousAttempt()]
    assert looked.environments[0]["ONWARD_CONTINUED"] == "1"
    assert "ONWARD_LEFT_DIR" not in looked.environments[0]


async def test_a_link_in_place_of_the_directory_before_is_not_followed(world: World, tmp_path: Path) -> None:
    process = await dead(world, tmp_path, write_and_die)
    (tmp_path / "runs" / "run" / "pay").rename(tmp_path / "elsewhere")
    (tmp_path / "runs" / "run" / "pay").symlink_to(tmp_path / "elsewhere")
    left = await found(process)
    assert (left.files, left.directory) == ((), None)
    assert "a link is not followed" in left.unseen[0]
    looked = Looked()
    process.agent.script["pay"] = [looked]
    await process.resume(action="continue")
    assert looked.left == [PreviousAttempt()]


BOTH = fan("a -> b", "c -> d", a="repeatable=false", c="repeatable=false")


async def both_stopped(world: World) -> Process:
    """A run whose process died while two branches were inside steps that must not be repeated."""
    door = Doorway()
    dying = await world.process({"a": [door], "c": [Died("here")]})
    with pytest.raises((Died, BaseExceptionGroup)):
        await asyncio.create_task(dying.start(BOTH))
    await dying.die()
    return await world.process()


async def test_several_stopped_steps_are_each_shown_and_each_wait_for_a_word(world: World) -> None:
    process = await both_stopped(world)
    steps = ["fan#1.a/a#1", "fan#1.c/c#1"]
    refused = await refusal(process)
    assert (refused.code, [left["step"] for left in refused.details["left"]]) == ("in_doubt", steps)
    for action in ("retry", "skip", "continue"):
        several = await refusal(process, action=action)
        assert (several.code, several.details) == ("several_stopped", {"steps": steps})
        assert f"name the one to {action} with --step" in str(several)


async def test_a_word_about_one_of_several_leaves_the_others_in_doubt(world: World) -> None:
    process = await both_stopped(world)
    run = await process.resume(action="continue", step="a")
    assert (run.status, run.reason, list(run.open_steps)) == (
        RunStatus.INTERRUPTED,
        "in_doubt",
        ["fan#1.c/c#1"],
    )
    assert (await process.resume(action="skip")).status is RunStatus.COMPLETED
    assert world.ledger.attempts("a") == [1, 2]
    assert world.ledger.attempts("c") == [1]


async def test_several_stopped_steps_can_be_given_up_together(world: World) -> None:
    process = await both_stopped(world)
    run = await process.resume(action="abort")
    assert (run.status, run.open_steps) == (RunStatus.CANCELLED, {})
