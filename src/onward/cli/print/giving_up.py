"""What to say when a run was given up: what nobody knows, what stays, and what is still possible."""

from __future__ import annotations

from collections.abc import Iterator

from onward.cli.options import Common
from onward.cli.print.text import one_line
from onward.machine.decide.doubt import is_in_doubt
from onward.model.ids import display_id
from onward.model.run import Run


def gave_up_lines(before: Run, checkpoint: int | None, common: Common) -> Iterator[str]:
    """For a run as it stood before it was given up; `checkpoint` is its last one."""
    doubtful = [opened.step for opened in before.open_steps.values() if is_in_doubt(opened)]
    if doubtful:
        yield f"whether {one_line(', '.join(doubtful))} was done is unknown; nothing was undone"
    else:
        yield "what its steps have done stays as it is; nothing was undone"
    if checkpoint is None:
        yield "it cannot be resumed"
        return
    again = f", which runs {one_line(', '.join(doubtful))} again" if doubtful else ""
    replay = common.command("replay", display_id(before.id), "--checkpoint", str(checkpoint))
    yield f"it cannot be resumed; a fork can continue from its last checkpoint{again}: {replay}"
