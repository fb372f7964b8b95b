"""What to say when a run was cancelled: what is unknown, what stays, and what is still possible."""

from __future__ import annotations

from collections.abc import Iterator

from onward.cli.options import Common
from onward.cli.print.text import one_line
from onward.model.ids import called
from onward.operations.here.replies import ResumeOutlook


def cancelled_lines(before: ResumeOutlook, common: Common) -> Iterator[str]:
    """For a run as it was before it was cancelled."""
    doubtful, last = before["in_doubt"], before["checkpoint"]
    if doubtful:
        yield f"whether {one_line(', '.join(doubtful))} finished is unknown; nothing was undone"
    else:
        yield "what its steps did stays as it is; nothing was undone"
    if last is None:
        yield "it cannot be resumed"
        return
    again = f", which runs {one_line(', '.join(doubtful))} again" if doubtful else ""
    replay = common.command("replay", called(before["run"]), "--checkpoint", str(last["seq"]))
    yield f"it cannot be resumed; a fork can continue from its last checkpoint{again}: {replay}"
