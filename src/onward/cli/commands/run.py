"""`onward run` and `replay`: a new run, or a fork from a checkpoint, executed to wherever it stops."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from onward.cli import options
from onward.cli.commands.foreground import Foreground, foreground
from onward.cli.commands.submit import Script, script_of
from onward.cli.flow_files import asked_run, with_app_of
from onward.cli.output import FINE, Output, context_of, one_line, one_of
from onward.cli.print.run import id_words, next_command
from onward.errors import RunNotFound
from onward.model.ids import EXACT, called, check_run_id
from onward.model.run import RunStatus
from onward.model.values import EVENT
from onward.operations.here.submission import ceilings, directory_of, named, shadowed_notice
from onward.operations.requests import ForkRun, GetRun, ListRuns, ResumeRun, SubmitRun
from onward.pipeline.build import Pipeline

if TYPE_CHECKING:
    from onward.replies.runs import RunListed

UNFINISHED_RUNS = tuple(
    status for status in RunStatus if status not in (RunStatus.COMPLETED, RunStatus.CANCELLED)
)
LOOKED_AT_MAX = 50


async def run(
    file: options.PipelineWord,
    /,
    *,
    settings: options.Settings = (),
    simulate: options.Simulate = None,
    real_tools: options.RealTools = False,
    answers: options.Answers = None,
    verbose: options.Verbose = False,
    run_id: options.RunId = None,
    chat: options.Chat = None,
    project: options.Project = None,
    cwd: Annotated[
        str | None,
        Parameter(
            help="The working directory of the run's commands, also when it is resumed elsewhere. Default: "
            "the current directory.",
            metavar="DIR",
        ),
    ] = None,
    workspace: options.Workspace = None,
    workspace_mode: options.WorkspaceMode = None,
    keep_workspace: options.KeepWorkspace = False,
    raises: options.Raises = (),
    common: options.Common = options.COMMON,
    out: options.Out,
) -> int:
    """Run a pipeline in the foreground, from its start.

    Ctrl-C lets the current step finish and pauses the run; a second Ctrl-C stops now. Nothing that has
    finished is lost or repeated: `onward resume` continues.
    """
    script = script_of(simulate, real_tools=real_tools)
    asking = asked_run(
        file,
        context_of(settings),
        simulation=script.entries,
        real_tools=script.real_tools,
        run_id=run_id,
        chat=chat,
        project=project,
        on_owner_loss="interrupt",
        workdir=directory_of(cwd),
        workspace=workspace,
        workspace_mode=workspace_mode,
        keep_workspace=keep_workspace,
        raises=tuple(map(options.raise_of, raises)),
    )
    with named(asking.pipeline):
        served = with_app_of(file, common)
        opening = foreground(
            served,
            out,
            answers,
            makes_database=asking.pipeline is None,
            verbose=verbose,
            is_app_of_file=served is not common,
        )
        return await _started(opening, asking, script, out)


async def _started(
    opening: AbstractAsyncContextManager[Foreground], asking: SubmitRun, script: Script, out: Output
) -> int:
    async with opening as desk:
        if notice := await shadowed_notice(desk.execution.engine.registry, asking):
            out.note(notice)
        pipeline = await desk.execution.prepare(asking)
        for warning in pipeline.warnings:
            if warning.rule != "type_known":  # the run is refused for it, with the same words
                out.note(str(warning))
        if not await _is_taken(
            desk, asking.run_id
        ):  # else the run is refused, and the user means another one
            await _mention_unfinished(desk, pipeline)
        handlers = desk.execution.handlers(pipeline)
        desk.progress.narrator.ceilings = await ceilings(desk.execution.engine.store.limits, asking, handlers)
        with script.located():
            started = await desk.execution.start_run(asking, pipeline)
        return desk.finish(started)


async def _is_taken(desk: Foreground, run_id: str | None) -> bool:
    """Whether a new run cannot have this id: there is one, or no run can be called so."""
    if run_id is None:
        return False
    try:
        await desk.operations.lists.list_runs(ListRuns(run=f"{EXACT}{check_run_id(run_id)}"))
    except RunNotFound:
        return False
    return True


async def _mention_unfinished(desk: Foreground, pipeline: Pipeline) -> None:
    """Say that the pipeline has a run that could be continued. It is not changed: this run is a new one.

    A run of which a fork has completed is left out, and one that was dismissed.
    """
    lists = desk.operations.lists
    query = ListRuns(statuses=UNFINISHED_RUNS, pipeline=pipeline.name, limit=LOOKED_AT_MAX)
    left = [
        run
        for run in (await lists.list_runs(query))["runs"]
        if run["path"] == pipeline.path or run["pipeline_hash"] == pipeline.hash
        if not run["is_dismissed"] and (run["status"] in ("queued", "waiting") or run["recoverable"])
    ]
    if left:
        query = ListRuns(statuses=(RunStatus.COMPLETED,), pipeline=pipeline.name, limit=LOOKED_AT_MAX)
        completed = (await lists.list_runs(query))["runs"]
        replayed = _replayed((*left, *completed), {run["id"] for run in completed})
        left = [run for run in left if run["id"] not in replayed]
    if not left:
        return
    newest = left[0]
    common = desk.common_of(newest["id"])
    which, more = "an unfinished run,", ""
    if len(left) > 1:
        which, more = (
            f"{len(left)} unfinished runs, the newest is",
            f"; {common.command('status')} lists them",
        )
    # A row of a list has neither the gates of a run nor the limit that stopped it.
    run = await desk.operations.look.get_run(GetRun(run=newest["id"]))
    command = next_command(run, common)
    if command is None:  # it has just ended
        return
    desk.out.note(
        f"this pipeline has {which} {called(run['id'])} ({run['status']}); "
        f"to continue that one instead: {command}{more}"
    )


def _replayed(runs: Sequence[RunListed], completed: Collection[str]) -> set[str]:
    """The runs that these completed runs were forked from, directly or by other forks."""
    parents = {run["id"]: run["parent"]["run"] for run in runs if run["parent"] is not None}
    found: set[str] = set()
    for run_id in completed:
        while (run_id := parents.get(run_id, "")) and run_id not in found:
            found.add(run_id)
    return found


async def replay(
    run: options.RunName,
    /,
    *,
    checkpoint: Annotated[
        int | None, options.number(EVENT, help="The checkpoint to start from: a SEQ of `onward checkpoints`.")
    ] = None,
    from_step: Annotated[
        str | None,
        Parameter(
            name="--from",
            help="Start before this step instead: its id, such as test#2, or its node for the last visit.",
            metavar="STEP",
        ),
    ] = None,
    accept_changes: options.AcceptChanges = False,
    original: options.Original = False,
    settings: options.Settings = (),
    run_id: options.RunId = None,
    start: Annotated[
        bool,
        Parameter(name="--run", negative="--no-run", help="Run the fork (the default), or only create it."),
    ] = True,
    answers: options.Answers = None,
    verbose: options.Verbose = False,
    common: options.Common = options.COMMON,
    out: options.Out,
) -> int:
    """Fork a run at a checkpoint, or before a step, and run the fork. The original run does not change."""
    one_of({"checkpoint": checkpoint is not None, "from": from_step is not None})
    one_of({"accept-changes": accept_changes, "original": original})
    asking = ForkRun(
        run=run,
        checkpoint=checkpoint,
        from_step=from_step,
        changes=context_of(settings),
        run_id=run_id,
        accept_changes=accept_changes,
        original=original,
    )
    async with foreground(common, out, answers, verbose=verbose, run=run) as desk:
        forked = await desk.operations.start.fork_run(asking)
        child, parent = forked["id"], forked["parent"]
        assert parent is not None  # a fork has one
        out.say(
            f"run {called(child)}: {one_line(forked['pipeline'])}{id_words(child)}, "
            f"forked from {called(parent['run'])} at checkpoint {parent['seq']}"
        )
        if forked["notice"]:
            out.note(forked["notice"])
        if not start:
            desk.tell(forked)
            return FINE
        return desk.finish(await desk.execution.resume_run(ResumeRun(run=child, original=True)))
