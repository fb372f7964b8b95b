"""`onward submit`: one run or very many, for the workers. It must be quick, so it imports little."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import Parameter

from onward.cli.exits import FINE
from onward.cli.many import Many, read_many
from onward.cli.numbers import number
from onward.cli.opening.creating import submit_of
from onward.cli.options import (
    COMMON,
    Chat,
    Common,
    KeepWorkspace,
    Out,
    PipelineWord,
    Project,
    RealTools,
    RunId,
    Settings,
    Simulate,
    Tags,
    Workspace,
    WorkspaceMode,
)
from onward.cli.print.output import Output
from onward.cli.print.render import id_words
from onward.cli.print.text import count, one_line
from onward.cli.script import Script, script_of
from onward.cli.times import read_time
from onward.cli.values import context_of, values_of_file
from onward.clock import SystemClock
from onward.errors import InvalidInput
from onward.model.ids import called
from onward.model.values import PRIORITY
from onward.operations.here.submission import directory_of, missing_notice, named, shadowed_notice, submission
from onward.operations.requests import SubmitRun, SubmitRuns


async def submit(
    file: PipelineWord,
    /,
    *,
    settings: Settings = (),
    set_file: Annotated[
        str | None,
        Parameter(help="A JSON object of context values; --set overrides them.", metavar="FILE"),
    ] = None,
    from_jsonl: Annotated[
        str | None,
        Parameter(
            help='One run per line: {"inputs": {…}}, and if wanted run_id, key, tags, priority, at, chat, '
            "project. - is standard input. A bad line refuses all.",
            metavar="FILE|-",
            allow_leading_hyphen=True,
        ),
    ] = None,
    simulate: Simulate = None,
    real_tools: RealTools = False,
    priority: Annotated[int, number(PRIORITY, help="Runs with a higher number are taken first.")] = 0,
    at: Annotated[
        str | None,
        Parameter(help="When the run is due: 2030-01-31T09:00:00Z, or a delay such as +10m.", metavar="TIME"),
    ] = None,
    exclusive_key: Annotated[
        str | None, Parameter(help="Of the runs with this key, one is executed at a time.", metavar="KEY")
    ] = None,
    tags: Tags = (),
    on_owner_loss: Annotated[
        Literal["requeue", "interrupt"],
        Parameter(help="When its worker dies: another continues, or a person decides."),
    ] = "requeue",
    run_id: RunId = None,
    chat: Chat = None,
    project: Project = None,
    cwd: Annotated[
        str | None,
        Parameter(
            help="The directory that the run's commands work in: only workers that have it take the run. "
            "Default: wherever the worker was started.",
            metavar="DIR",
        ),
    ] = None,
    workspace: Workspace = None,
    workspace_mode: WorkspaceMode = None,
    keep_workspace: KeepWorkspace = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Create a run, or with --from-jsonl many, and leave them to the workers."""
    if run_id is not None and from_jsonl is not None:
        raise InvalidInput("--run-id names one run, and --from-jsonl creates many; write run_id in lines.")
    now_us, script = SystemClock().now_us(), script_of(simulate, real_tools=real_tools)
    asking = submission(
        file,
        inputs={**values_of_file(set_file), **context_of(settings)},
        simulation=script.entries,
        real_tools=script.real_tools,
        priority=priority,
        on_owner_loss=on_owner_loss,
        exclusive_key=exclusive_key,
        tags=tags,
        wake_at_us=None if at is None else read_time(at, "--at", now_us=now_us),
        run_id=run_id,
        chat=chat,
        project=project,
        workdir=None if cwd is None else directory_of(cwd, is_here=False),
        workspace=workspace,
        workspace_mode=workspace_mode,
        keep_workspace=keep_workspace,
    )
    with named(asking.pipeline):
        if from_jsonl is None:
            await _submit_one(asking, script, common, out)
        else:
            await _submit_many(read_many(from_jsonl, asking, now_us=now_us), script, common, out)
    return FINE


async def _submit_one(asking: SubmitRun, script: Script, common: Common, out: Output) -> None:
    async with submit_of(common, makes=asking.pipeline is None) as runs:
        with script.located():
            made = await runs.submit_run(asking)
        notice = await shadowed_notice(runs.registry, asking)
    run = made["run"]
    _tell([*made["warnings"], notice], asking, out)
    due = f", due at {run['wake_at']}" if asking.wake_at_us is not None else ""
    out.say(f"run {called(run['id'])}: {one_line(run['pipeline'])}{id_words(run['id'])} is queued{due}")
    if run["waiting_for"]:
        out.note(run["waiting_for"]["says"])
    if out.is_json:
        out.value(run)


async def _submit_many(many: Many, script: Script, common: Common, out: Output) -> None:
    async with submit_of(common, makes=many.runs[0].pipeline is None) as runs:
        with script.located(), many.located():
            made = await runs.submit_runs(SubmitRuns(runs=many.runs))
        notice = await shadowed_notice(runs.registry, many.runs[0])
    _tell([*made["warnings"], notice], many.runs[0], out)
    pipeline = one_line(made["runs"][0]["pipeline"])
    out.say(f"{count(len(made['runs']), 'run')} of {pipeline} queued")
    for says in dict.fromkeys(run["waiting_for"]["says"] for run in made["runs"] if run["waiting_for"]):
        out.note(says)
    if out.is_json:
        out.value(made["runs"])


def _tell(warnings: Sequence[str], asking: SubmitRun, out: Output) -> None:
    for notice in filter(None, (*warnings, missing_notice(asking.workdir))):
        out.note(notice)
