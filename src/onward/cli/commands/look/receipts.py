"""`onward receipts`: what each step of a run left, checked against the log and made to agree with it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from onward.cli.commands.look.files import Looking, looking_at, target
from onward.cli.exits import FAILED, FINE
from onward.cli.options import COMMON, Common, Out, OutDirectory, RunName
from onward.cli.print.output import Output
from onward.cli.print.text import count, one_line, table
from onward.engine.files.rebuild import rebuild
from onward.engine.files.receipts import committed
from onward.errors import InvalidInput
from onward.model.ids import display_id
from onward.receipts.folder import Folder
from onward.receipts.names import Path
from onward.receipts.places import HANDOFFS, RECEIPTS, flow_name, is_finished_file
from onward.receipts.reading import Committed, Finding, Found, read_receipts
from onward.receipts.receipt import Receipt
from onward.receipts.resume_point import ResumePoint, find_resume_point

LAZY = "missing"  # what was never written is no problem: it is written now


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
    async with looking_at(run, common) as looking:
        folder, at = target(looking, out_dir)
        flow, expected = flow_name(looking.run.pipeline), {}
        try:
            expected = dict(await committed(looking.store.log, looking.sources, looking.run))
            before = read_receipts(folder, at, flow, expected) if folder.names(at) else Found()
            written = await rebuild(looking.store, looking.sources, looking.run, folder, at)
            if not looking.is_held:
                _put_aside(folder, (*at, flow), expected)
            after = read_receipts(folder, at, flow, expected)
        except OSError as error:
            raise InvalidInput(f"{folder.path(*at)} cannot be written: {error.strerror or error}.") from None
        point = await _point(looking, folder.path(*at, flow, RECEIPTS), expected)
    found = [finding for finding in before.findings if finding.kind != LAZY]
    kept = sorted(after.trusted.items(), key=lambda item: item[1].sequence)
    if out.is_json:
        out.value(_view(looking, folder.path(*at, flow), kept, found, after.findings, point, written))
    else:
        _tell(out, kept, found, after.findings)
        name = display_id(looking.run.id)
        said = f"run {name}: {count(len(kept), 'receipt')}, {count(written, 'file')} written to "
        out.say(said + folder.path(*at, flow))
    return FAILED if after.findings else FINE


async def _point(looking: Looking, path: str, expected: dict[str, Committed]) -> ResumePoint:
    graph = (await looking.sources.stored(looking.run)).graph
    return find_resume_point(path, graph, committed=expected)


def _put_aside(folder: Folder, flow: Path, expected: Collection[str]) -> None:
    for kind in (RECEIPTS, HANDOFFS):
        for name in folder.names((*flow, kind)):
            if is_finished_file(name) and name not in expected:
                folder.put_aside(name, (*flow, kind))


def _tell(
    out: Output, kept: Sequence[tuple[str, Receipt]], found: Sequence[Finding], left: Sequence[Finding]
) -> None:
    rows = [
        (
            str(receipt.sequence),
            one_line(receipt.step_id),
            one_line(receipt.agent_key),
            receipt.status,
            str(len(receipt.attempts) or 1),
            f"{receipt.duration_ms / 1000:.3f}",
            one_line((receipt.routing.to if receipt.routing else "") or ""),
        )
        for _, receipt in kept
    ]
    for line in table(("EVENT", "STEP", "AGENT", "STATUS", "ATTEMPTS", "SECONDS", "NEXT"), rows):
        out.say(line)
    for finding in found:
        out.note(f"{finding.kind}: {one_line(finding.says)}")
    for finding in left:
        if finding not in found:
            out.note(f"still {finding.kind}: {one_line(finding.says)}")


def _view(
    looking: Looking,
    directory: str,
    kept: Sequence[tuple[str, Receipt]],
    found: Sequence[Finding],
    left: Sequence[Finding],
    point: ResumePoint,
    written: int,
) -> dict[str, Any]:
    def told(findings: Sequence[Finding]) -> list[dict[str, str]]:
        return [{"kind": one.kind, "file": one.file, "says": one.says} for one in findings]

    return {
        "run": looking.run.id,
        "directory": directory,
        "written": written,
        "receipts": [{"file": name, **msgspec.to_builtins(receipt)} for name, receipt in kept],
        "found": told(found),
        "left": told(left),
        "resume_point": {"step": point.step, "action": point.action, "reason": point.reason},
    }
