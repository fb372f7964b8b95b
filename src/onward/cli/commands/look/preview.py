"""`onward resume --dry-run`: what would be skipped, and what would run first."""

from __future__ import annotations

from onward.cli.print.leftovers import left_lines
from onward.cli.print.output import Output
from onward.cli.print.text import one_line
from onward.operations.replies.runs import ResumePreview


def tell_preview(seen: ResumePreview, out: Output) -> None:
    """Print what a resume would skip and do."""
    if seen["notice"]:
        out.note(seen["notice"])
    for step in seen["skip"]:
        out.say(f"SKIP  {one_line(step)}")
    for act in seen["plan"]:
        why = f"  ({one_line(act['why'])})" if act["why"] else ""
        out.say(f"{act['does'].upper():<5} {one_line(act['what'])}{why}")
    for line in left_lines(seen["left"]):
        out.say(line)
    out.say("nothing was changed")
    if out.is_json:
        out.value(seen)
