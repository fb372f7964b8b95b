"""`onward files`, `artifacts`, `receipts` and `logs`: what a run and its steps left.

Files and artifacts come out of the run's log. Receipts are checked against the log and made to agree with it.
`logs` prints what the steps printed.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from onward.cli.operations import files_of, logs_of, look_of
from onward.cli.options import COMMON, Common, Out, OutDirectory, RunName, StepName, number
from onward.cli.output import FAILED, FINE, Output, age, count, one_line, table, visible
from onward.cli.print.run import attempts_words, instant_us
from onward.cli.signals import on_signals
from onward.clock import SystemClock
from onward.errors import InvalidInput
from onward.model.ids import called
from onward.model.values import ATTEMPT
from onward.operations.here.requests import ReadLogs, WriteFiles, WriteReceipts
from onward.operations.requests import GetArtifact, ListArtifacts

if TYPE_CHECKING:
    from onward.operations.here.replies import FilesWritten, ReceiptsWritten
    from onward.replies.steps import ArtifactContent, ArtifactList, LogPiece

FILES_SHOWN = 50
CONTENT = ("content", "content_base64")


async def files(
    run: RunName,
    /,
    *,
    out_dir: OutDirectory = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Write the files of a run from its log: manifest, checkpoint, prompts, responses, statuses, receipts.

    Missing files are written; files that a step wrote itself are left alone.
    """
    async with files_of(common) as directories:
        done = await directories.write_files(WriteFiles(run=run, directory=out_dir))
    if out.is_json:
        out.value(done)
    else:
        name, where = called(done["run"]), done["directory"]
        tell_written(done, out)
        out.say(f"run {name}: {count(done['written'], 'file')} written to {where}")
    return FINE


def tell_written(done: FilesWritten, out: Output) -> None:
    """Name the files that were written; of very many, the first."""
    for name in done["files"][:FILES_SHOWN]:
        out.say(f"wrote {one_line(name, 1_000)}")
    if done["written"] > FILES_SHOWN:
        out.say(f"and {count(done['written'] - FILES_SHOWN, 'more file')}; --json lists all")


async def artifacts(
    run: RunName,
    id: Annotated[str | None, Parameter(help="The artifact to fetch.")] = None,
    /,
    *,
    out_file: Annotated[
        str | None, Parameter(name="--out", help="Write the artifact to this file.", metavar="FILE")
    ] = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """List a run's artifacts, or print one or write it to a file."""
    if id is None:
        if out_file is not None:
            raise InvalidInput("--out needs an artifact: `onward artifacts RUN ID --out FILE`.")
        async with look_of(common) as look:
            _tell_artifacts(await look.list_artifacts(ListArtifacts(run=run)), out)
        return FINE
    async with look_of(common) as look:
        found = await look.get_artifact(GetArtifact(run=run, id=id))
    content = _content(found)
    if out_file is not None:
        _write(out_file, content)
        out.say(f"{id}: {len(content):,} bytes written to {out_file}")
    if out.is_json:
        out.value({key: shown for key, shown in found.items() if out_file is None or key not in CONTENT})
    elif out_file is None:
        _print(id, content, out)
    return FINE


def _content(found: ArtifactContent) -> bytes:
    if "content" in found:
        return found["content"].encode()
    return base64.b64decode(found["content_base64"])


def _tell_artifacts(found: ArtifactList, out: Output) -> None:
    if out.is_json:
        out.value(found["artifacts"])
        return
    if not found["artifacts"]:
        out.say(f"run {called(found['run'])} has no artifacts")
        return
    now_us = SystemClock().now_us()
    rows = [
        (
            one_line(artifact["id"]),
            one_line(artifact["name"]),
            f"{artifact['size_bytes']:,}",
            artifact["step"],
            age(instant_us(artifact["stored_at"]), now_us),
        )
        for artifact in found["artifacts"]
    ]
    for line in table(("ID", "NAME", "BYTES", "STEP", "STORED"), rows):
        out.say(line)


def _print(id: str, content: bytes, out: Output) -> None:
    """As it is for a program; for a person, only what a terminal can show."""
    if not out.is_live:
        out.raw(content)
        return
    try:
        out.say(content.decode())
    except UnicodeDecodeError:
        raise InvalidInput(f"artifact {id!r} is not text; write it to a file with --out FILE.") from None


def _write(path: str, content: bytes) -> None:
    try:
        with open(path, "wb") as file:
            file.write(content)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}.") from None


async def receipts(
    run: RunName,
    /,
    *,
    out_dir: OutDirectory = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """List the receipts of a run. Missing, partial, stale or altered files are rewritten from the log.

    A file that contradicts the log is moved aside, unless a process holds the run. The exit code is 1 if
    anything still contradicts it.
    """
    async with files_of(common) as directories:
        done = await directories.write_receipts(WriteReceipts(run=run, directory=out_dir))
    if out.is_json:
        out.value(done)
    else:
        _tell_receipts(done, out)
    return FAILED if done["left"] else FINE


def _attempts(tries: Sequence[Mapping[str, Any]]) -> str:
    return attempts_words(tries[-1]["attempt"] if tries else 1, len(tries))


def _tell_receipts(done: ReceiptsWritten, out: Output) -> None:
    rows = [
        (
            str(receipt["sequence"]),
            one_line(receipt["step_id"]),
            one_line(receipt["agent_key"]),
            receipt["status"],
            _attempts(receipt["attempts"]),
            f"{receipt['duration_ms'] / 1000:.3f}",
            one_line((receipt["routing"] or {}).get("to") or ""),
        )
        for receipt in done["receipts"]
    ]
    for line in table(("EVENT", "STEP", "AGENT", "STATUS", "ATTEMPTS", "SECONDS", "NEXT"), rows):
        out.say(line)
    for finding in done["found"]:
        out.note(f"{finding['kind']}: {one_line(finding['says'])}")
    for finding in done["left"]:
        if finding not in done["found"]:
            out.note(f"still {finding['kind']}: {one_line(finding['says'])}")
    tell_written(done, out)
    kept, written = count(len(rows), "receipt"), count(done["written"], "file")
    out.say(f"run {called(done['run'])}: {kept}, {written} written; receipts are in {done['directory']}")


NOTHING_PRINTED = (
    "no output is stored here. The output of commands and agents is stored on the machine where they ran; "
    "the log has the last lines of attempts that failed. The output of Python functions is not stored: use "
    "`step.log(text)` in handlers, which `onward show` prints."
)


async def logs(
    run: RunName,
    step: StepName | None = None,
    /,
    *,
    attempt: Annotated[int | None, number(ATTEMPT, help="Only this attempt of each step.")] = None,
    follow: Annotated[
        bool, Parameter(name=("--follow", "-f"), help="Print new output as it arrives, until the run stops.")
    ] = False,
    stdout: Annotated[bool, Parameter(help="Only standard output.")] = False,
    stderr: Annotated[bool, Parameter(help="Only standard error.")] = False,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Print the output of a run's commands and agents: of all its steps and attempts, or of one.

    On the machine where the run was executed, this is the whole output, from the run's files. Elsewhere it is
    only what the log contains: tracebacks, and the last lines of attempts that failed or were stopped. A
    heading precedes each part; if a step is named, headings go to standard error. A server sends the last 256
    KiB.

    The output of Python functions goes to the terminal of their process and is not stored. Lines written with
    `step.log(text)` are stored: `onward show` prints them.
    """
    streams = tuple(name for name, is_wanted in (("stdout", stdout), ("stderr", stderr)) if is_wanted)
    request = ReadLogs(run=run, step=step, attempt=attempt, follow=follow, streams=streams)
    asked, page = asyncio.Event(), _LogPage(out, is_one_step=step is not None)
    async with logs_of(common, out.note) as reader, aclosing(reader.read_logs(request, stop=asked)) as found:
        with on_signals(asked.set):
            async for piece in found:
                page.add(piece)
                if out.is_gone:
                    break
    page.close()
    return FINE


class _LogPage:
    """Prints pieces of output, with a heading before those of another try or stream."""

    def __init__(self, out: Output, *, is_one_step: bool) -> None:
        self._out = out
        self._tell = out.note if is_one_step else out.say
        self._heading = ""
        self._is_at_start = True

    def add(self, piece: LogPiece) -> None:
        if self._out.is_json:
            self._out.value(piece)
            self._heading = "-"
            return
        heading = _log_heading(piece)
        if heading != self._heading:
            self._end_line()
            self._tell(f"==> {heading} <==")
            self._heading = heading
        text = piece["text"]
        if self._out.is_live:
            self._out.say(visible(text), end="")
        else:
            self._out.raw(text.encode())
        self._is_at_start = text.endswith("\n")

    def close(self) -> None:
        self._end_line()
        if not self._heading:
            self._out.note(NOTHING_PRINTED)

    def _end_line(self) -> None:
        if not self._is_at_start:
            self._out.say()
            self._is_at_start = True


def _log_heading(piece: LogPiece) -> str:
    again = f", try {piece['number']}" if piece["number"] > 1 else ""
    what = piece["stream"]
    if piece["source"] == "log" and what in ("stdout", "stderr"):
        what = "last lines, from the log"
    return f"{piece['step']}, attempt {piece['attempt']}{again}: {what}"
