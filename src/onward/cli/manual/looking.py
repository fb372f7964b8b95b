"""Examples and exit codes of the commands under `Look`."""

from __future__ import annotations

from collections.abc import Mapping

from onward.cli.exits import FAILED
from onward.cli.manual.page import LOOK, REFUSED, Manual

LOOKING: Mapping[str, Manual] = {
    "status": Manual(
        {
            "onward status": "the newest runs",
            "onward status --status failed --json": "failed runs, for a program",
            "onward status 4k7m2q --watch": "one run, until Ctrl-C",
        },
        LOOK,
    ),
    "show": Manual(
        {"onward show 4k7m2q": "all that happened in a run", "onward show 4k7m2q test": "one of its steps"},
        LOOK,
    ),
    "logs": Manual(
        {
            "onward logs 4k7m2q": "what its steps printed",
            "onward logs 4k7m2q test --stderr --follow": "the errors of one step, as they come",
        },
        LOOK,
    ),
    "messages": Manual(
        {
            "onward messages 4k7m2q --follow": "what its models say, until it stops",
            "onward messages 4k7m2q --after 812 --json": "continue after a position",
        },
        LOOK,
        takes="RUN|CHAT",
    ),
    "events": Manual(
        {
            "onward events 4k7m2q --follow": "the log, and what is appended to it",
            "onward events 4k7m2q --after 12 --json": "one JSON object a line, from event 13",
        },
        LOOK,
    ),
    "checkpoints": Manual({"onward checkpoints 4k7m2q": "where `onward replay` can start"}, LOOK),
    "graph": Manual(
        {
            "onward graph hello.dot": "the pipeline, in the terminal",
            "onward graph 4k7m2q --out run.svg": "what happened in a run, as a picture",
        },
        LOOK,
        takes="RUN|FILE",
    ),
    "files": Manual({"onward files 4k7m2q --out copy": "write the run's files below copy/"}, LOOK),
    "receipts": Manual(
        {"onward receipts 4k7m2q": "list them, and mend what disagrees with the log"},
        {**LOOK, FAILED: f"something still disagrees with the log; or {REFUSED}"},
    ),
    "calls": Manual(
        {
            "onward calls 4k7m2q": "model requests, effects and functions, with tokens and cost",
            "onward calls 4k7m2q --step write": "those of one node",
        },
        LOOK,
    ),
    "artifacts": Manual(
        {
            "onward artifacts 4k7m2q": "list them",
            "onward artifacts 4k7m2q report --out report.md": "write one into a file",
        },
        LOOK,
    ),
    "notifications": Manual(
        {
            "onward notifications --failed": "those that were given up, and why",
            "onward notifications --retry ID": "deliver one again",
        },
        LOOK,
    ),
    "chats": Manual(
        {
            "onward chats": "the chats, newest first",
            "onward chats show site-7": "its runs, what was said, and what waits",
        },
        LOOK,
        takes="[show CHAT]",
    ),
    "usage": Manual(
        {
            "onward usage": "what calls cost, day by day",
            "onward usage --by model --json": "by model, for a program",
        },
        LOOK,
    ),
}
