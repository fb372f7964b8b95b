"""`onward submit`: one run or very many, for the workers. It must be quick, so it imports little.

Many runs come in a file of JSON lines: one object for each, checked before anything is created. The
simulation script that `--simulate` names is read, checked, and known by its lines; `run` uses it too.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import msgspec
from cyclopts import Parameter

from onward.cli import options
from onward.cli.flow_files import asked_run, with_app_of
from onward.cli.operations import server_of, submit_of
from onward.cli.output import FINE, Output, context_of, count, one_line, values_of_file
from onward.cli.print.run import id_words
from onward.clock import SystemClock
from onward.errors import InvalidInput, InvalidScript, RefusedInList
from onward.model.ids import called
from onward.model.values import PRIORITY
from onward.operations.here.submission import (
    ceilings,
    directory_of,
    missing_notice,
    named,
    shadowed_notice,
)
from onward.operations.requests import SubmitRun, SubmitRuns

if TYPE_CHECKING:
    from onward.replies.runs import RunState


async def submit(
    file: options.PipelineWord,
    /,
    *,
    settings: options.Settings = (),
    set_file: Annotated[
        str | None,
        Parameter(help="A JSON object of context values; --set overrides them.", metavar="FILE"),
    ] = None,
    from_jsonl: Annotated[
        str | None,
        Parameter(
            help='One run per line: {"inputs": {…}}, and optionally run_id, key, tags, priority, at, chat, '
            "project. - is standard input. One invalid line rejects the whole file.",
            metavar="FILE|-",
            allow_leading_hyphen=True,
        ),
    ] = None,
    simulate: options.Simulate = None,
    real_tools: options.RealTools = False,
    priority: Annotated[
        int, options.number(PRIORITY, help="Runs with a higher number are claimed first.")
    ] = 0,
    at: Annotated[
        str | None,
        Parameter(help="When the run is due: 2030-01-31T09:00:00Z, or a delay such as +10m.", metavar="TIME"),
    ] = None,
    exclusive_key: Annotated[
        str | None, Parameter(help="Only one run with this key is executed at a time.", metavar="KEY")
    ] = None,
    tags: options.Tags = (),
    on_owner_loss: Annotated[
        Literal["requeue", "interrupt"],
        Parameter(
            help="If its worker dies: requeue (another worker continues) or interrupt (a person decides)."
        ),
    ] = "requeue",
    run_id: options.RunId = None,
    chat: options.Chat = None,
    project: options.Project = None,
    cwd: Annotated[
        str | None,
        Parameter(
            help="The working directory of the run's commands: only workers that have it claim the run. "
            "Default: where the worker was started.",
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
    """Create a run, or many with --from-jsonl, for workers to execute."""
    if run_id is not None and from_jsonl is not None:
        raise InvalidInput("--run-id names one run, and --from-jsonl creates many; write run_id in lines.")
    now_us, script = SystemClock().now_us(), script_of(simulate, real_tools=real_tools)
    asking = asked_run(
        file,
        {**values_of_file(set_file), **context_of(settings)},
        simulation=script.entries,
        real_tools=script.real_tools,
        priority=priority,
        on_owner_loss=on_owner_loss,
        exclusive_key=exclusive_key,
        tags=tags,
        wake_at_us=None if at is None else options.read_time(at, "--at", now_us=now_us),
        run_id=run_id,
        chat=chat,
        project=project,
        workdir=None if cwd is None else directory_of(cwd, is_here=False),
        workspace=workspace,
        workspace_mode=workspace_mode,
        keep_workspace=keep_workspace,
        raises=tuple(map(options.raise_of, raises)),
    )
    if server_of(common) is not None:
        return await _submit_there(asking, script, from_jsonl, common, out)
    common = with_app_of(file, common)
    with named(asking.pipeline):
        if from_jsonl is None:
            await _submit_one(asking, script, common, out)
        else:
            await _submit_many(read_many(from_jsonl, asking, now_us=now_us), script, common, out)
    return FINE


async def _submit_there(
    asking: SubmitRun, script: Script, from_jsonl: str | None, common: options.Common, out: Output
) -> int:
    """Create a run on a server, which has the registered pipelines, but not the files of this machine."""
    from onward.cli.commands.remote import desk_of

    if from_jsonl is not None:
        raise InvalidInput("--from-jsonl cannot be sent to a server; run the command where the database is.")
    if asking.pipeline is None:
        raise InvalidInput(
            f"a server starts registered pipelines by name, but {asking.file} is a local file; on the "
            f"server's machine: onward pipelines add {asking.file}."
        )
    async with desk_of(common, out) as server:
        assert server is not None
        with script.located():
            made = await server.operations.start.submit_run(asking)
    _tell(made["warnings"], asking, out)
    _tell_run(made["run"], asking, out)
    return FINE


async def _submit_one(asking: SubmitRun, script: Script, common: options.Common, out: Output) -> None:
    async with submit_of(common, makes=asking.pipeline is None) as runs:
        with script.located():
            made = await runs.submit_run(asking)
        notice = await shadowed_notice(runs.registry, asking)
        run = made["run"]
        said = await ceilings(runs.registry.store.limits, asking, run["handlers"], run=run["id"])
    _tell([*made["warnings"], notice], asking, out)
    _tell_run(run, asking, out, said)


def _tell_run(run: RunState, asking: SubmitRun, out: Output, said: str = "") -> None:
    due = f", due at {run['wake_at']}" if asking.wake_at_us is not None else ""
    out.say(f"run {called(run['id'])}: {one_line(run['pipeline'])}{id_words(run['id'])} is queued{due}")
    if said:
        out.say(f"  limits    {said}")
    if run["waiting_for"]:
        out.note(run["waiting_for"]["says"])
    if out.is_json:
        out.value(run)


async def _submit_many(many: Many, script: Script, common: options.Common, out: Output) -> None:
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


STANDARD_INPUT = "-"
FILE_BYTES_MAX = 64 * 1024 * 1024


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is a run's own; the command line says the rest."""

    inputs: dict[str, Any] = {}
    run_id: str | None = None
    key: str | None = None
    tags: tuple[str, ...] = ()
    priority: int | None = None
    at: str | None = None
    chat: str | None = None
    project: str | None = None


_LINE_DECODER = msgspec.json.Decoder(_Line)


class Many(msgspec.Struct, frozen=True):
    """The runs of a file, and the line that each stands in."""

    name: str
    runs: tuple[SubmitRun, ...]
    lines: tuple[int, ...]

    @contextmanager
    def located(self) -> Iterator[None]:
        """Say of a run that is refused in which line it stands."""
        try:
            yield
        except RefusedInList as error:
            raise InvalidInput(error.told(f"{self.name} line {self.lines[error.number]}")) from error


def read_many(path: str, common: SubmitRun, *, now_us: int) -> Many:
    """The runs of a file of JSON lines, or of standard input; `common` is what all have."""
    name = "standard input" if path == STANDARD_INPUT else path
    runs: list[SubmitRun] = []
    lines: list[int] = []
    for line_number, text in enumerate(_read_many_file(path).split(b"\n"), 1):
        if text.strip():
            runs.append(_run(text, common, f"{name} line {line_number}", now_us))
            lines.append(line_number)
    if not runs:
        raise InvalidInput(f'{name} has no runs; write one object per line, such as {{"inputs": {{}}}}.')
    return Many(name, tuple(runs), tuple(lines))


def _run(text: bytes, common: SubmitRun, where: str, now_us: int) -> SubmitRun:
    try:
        line = _LINE_DECODER.decode(text)
        at_us = common.wake_at_us if line.at is None else options.read_time(line.at, "at", now_us=now_us)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidInput) as error:
        raise InvalidInput(f"{where}: {str(error).rstrip('.')}; nothing was created.") from None
    return msgspec.structs.replace(
        common,
        inputs={**common.inputs, **line.inputs},
        run_id=line.run_id,
        key=line.key,
        tags=(*common.tags, *line.tags),
        priority=common.priority if line.priority is None else line.priority,
        wake_at_us=at_us,
        chat=common.chat if line.chat is None else line.chat,
        project=common.project if line.project is None else line.project,
    )


def _read_many_file(path: str) -> bytes:
    if path == STANDARD_INPUT:
        return _within(sys.stdin.buffer, "standard input")
    try:
        with open(path, "rb") as file:
            return _within(file, path)
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}.") from None


def _within(file: BinaryIO, name: str) -> bytes:
    content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise InvalidInput(f"{name} is larger than {FILE_BYTES_MAX:,} bytes; submit it in parts.")
    return content


BYTES_MAX = 8 * 1024 * 1024
_SPACE = re.compile(r"[\s,:]*")
_JSON_DECODER = json.JSONDecoder()


class Script(msgspec.Struct, frozen=True):
    """What `--simulate` asks for. `entries`: None without it, empty if every step succeeds."""

    entries: dict[str, Any] | None = None
    name: str = ""
    text: str = ""
    real_tools: bool = False

    @contextmanager
    def located(self) -> Iterator[None]:
        """What is wrong with an entry is said with the script's name and line."""
        try:
            yield
        except InvalidScript as error:
            if not self.name:
                raise
            where = f"{self.name}:{line_of(self.text, error.place)}"
            raise InvalidScript(error.place, error.reason, where=where) from None


def script_of(simulate: str | None, *, real_tools: bool = False) -> Script:
    """The simulation that `--simulate [SCRIPT.json]` and `--real-tools` ask for."""
    if simulate is None:
        if real_tools:
            raise InvalidInput("--real-tools needs --simulate; without it nothing is simulated.")
        return Script()
    if not simulate:
        return Script({}, real_tools=real_tools)
    from onward.handlers.simulate import check_script

    text = _read_script_file(simulate)
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except InvalidInput as error:
        raise InvalidInput(f"the simulation script {simulate} {error}.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the simulation script {simulate} is not JSON: {error}.") from None
    script = Script({}, simulate, text, real_tools)
    with script.located():
        try:
            return Script(check_script(found), simulate, text, real_tools)
        except InvalidScript:
            raise
        except InvalidInput as error:
            raise InvalidInput(f"{simulate} is not a simulation script: {error}.") from None


def _read_script_file(path: str) -> str:
    try:
        with open(path, "rb") as file:
            content = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise InvalidInput(f"cannot read the simulation script {path}: {error.strerror}.") from None
    if len(content) > BYTES_MAX:
        raise InvalidInput(f"the simulation script {path} is larger than {BYTES_MAX:,} bytes.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"the simulation script {path} is not UTF-8 at byte {error.start}; save it as UTF-8."
        ) from None


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object as JSON has it, but not with a name twice: one of the two would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInput(f"has {twice!r} twice")
    return found


def line_of(text: str, place: Sequence[str | int]) -> int:
    """The line of a value in a JSON text; a name leads into an object, a number into a list."""
    at = line_at = _skip(text, 0)
    for part in place:
        at = _skip(text, at + 1)
        for index in range(len(text)):
            line_at = at
            name, at = scanstring(text, at + 1) if isinstance(part, str) else (index, at)
            at = _skip(text, at)
            if name == part:
                break
            at = _skip(text, _JSON_DECODER.raw_decode(text, at)[1])
    return text.count("\n", 0, line_at) + 1


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
