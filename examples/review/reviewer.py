"""The tools that the reviewer has besides the built-in ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from onward import Onward, ToolUse

HERE = Path(__file__).parent
POSTED = HERE / "posted.md"
app = Onward()


@app.tool
def convention(topic: Literal["money", "errors", "files", "names"]) -> str:
    """What this project has agreed on about a topic."""
    _note(f"convention {topic}")
    rules = dict(line.split(": ", 1) for line in (HERE / "conventions.md").read_text().splitlines())
    return rules[topic]


@app.tool(repeatable=False, approval=True)
def post_review(title: str, comments: Annotated[list[str], "one sentence each"], use: ToolUse) -> str:
    """Post the review where everybody sees it."""
    _note(f"post_review {use.key}")
    lines = "".join(f"- {comment}\n" for comment in comments)
    with POSTED.open("a", encoding="utf-8") as file:  # stands for a request to a service, made once
        file.write(f"## {title}\n\n{lines}\n")
    return f"Posted {title!r} with {len(comments)} comments."


def _note(what: str) -> None:
    """Write down that a tool was used, outside of Onward, so that it can be counted."""
    with (HERE / "uses.txt").open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")
