"""`onward receipts`: what each step of a run left, checked against the log and made to agree with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onward.cli.commands.look.files import tell_written
from onward.cli.exits import FAILED, FINE
from onward.cli.opening.looking import files_of
from onward.cli.options import COMMON, Common, Out, OutDirectory, RunName
from onward.cli.print.output import Output
from onward.cli.print.render import attempts_words
from onward.cli.print.text import count, one_line, table
from onward.model.ids import called
from onward.operations.here.replies import ReceiptsWritten
from onward.operations.here.requests import WriteReceipts


async def receipts(
    run: RunName,
    /,
    *,
    out_dir: OutDirectory = None,
    common: Common = COMMON,
    out: Out,
) -> int:
    """List the receipts of a run. What is missing, partial, stale or altered on disk is written from the log.

    A file that does not agree with the log is moved aside, unless a process holds the run. The exit code is
    1 if something still disagrees.
    """
    async with files_of(common) as directories:
        done = await directories.write_receipts(WriteReceipts(run=run, directory=out_dir))
    if out.is_json:
        out.value(done)
    else:
        _tell(done, out)
    return FAILED if done["left"] else FINE


def _attempts(tries: Sequence[Mapping[str, Any]]) -> str:
    return attempts_words(tries[-1]["attempt"] if tries else 1, len(tries))


def _tell(done: ReceiptsWritten, out: Output) -> None:
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
