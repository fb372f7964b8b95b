"""Examples and exit codes of the commands under `Run`."""

from __future__ import annotations

from collections.abc import Mapping

from onward.cli.exits import FAILED, FINE, UNFINISHED, USAGE
from onward.cli.manual.page import CONTINUE, LOOK, MISUSED, REFUSED, RUN, Manual

RUNNING: Mapping[str, Manual] = {
    "validate": Manual(
        {"onward validate hello.dot": "all problems, with line and column"},
        {
            FINE: "valid, perhaps with warnings",
            USAGE: "the pipeline cannot run, or cannot be read",
        },
    ),
    "run": Manual(
        {
            "onward run hello.dot": "run it here, from its start",
            "onward run hello.dot --simulate": "let every step succeed without executing it",
            "onward run hello.dot --set topic=tea --set count:=3": "give it context values",
            "onward run site@2": "version 2 of a registered pipeline",
        },
        RUN,
        takes="FILE|NAME",
    ),
    "simulate-script": Manual(
        {"onward simulate-script hello.dot > script.json": "for `onward run --simulate script.json`"},
        LOOK,
    ),
    "resume": Manual(
        {
            "onward resume 4k7m2q": "continue after the last finished step",
            "onward resume 4k7m2q --dry-run": "only say what would run",
            "onward resume 4k7m2q --accept-changes": "with the pipeline file as it is now",
            "onward resume 4k7m2q --raise day.tokens=400000": "raise the limit that stopped it first",
        },
        {**CONTINUE, FINE: "the run completed; with --queue or --dry-run, it was decided or shown"},
    ),
    "replay": Manual(
        {
            "onward replay 4k7m2q --from write --set topic=tea": "fork before a step, with another value",
            "onward checkpoints 4k7m2q": "lists all points at which a fork can begin",
            "onward replay 4k7m2q --checkpoint 9": "fork at one of them, and run",
        },
        {**RUN, FINE: "the fork completed; with --no-run, it was made"},
    ),
    "chat": Manual(
        {
            'onward chat site-7 "build me a landing page" --watch': "start a run, and execute it here",
            'onward chat site-7 "continue?"': "resume the run that stopped",
            'onward chat site-7 "a shop instead" --fresh': "give up the old run, and start anew",
        },
        {
            FINE: "the message is stored, and what follows is queued; with --watch, its run completed",
            FAILED: f"it is stored and nothing could follow; with --watch, its run failed; or {REFUSED}",
            USAGE: MISUSED,
            UNFINISHED: "the chat waits for an answer; with --watch, its run is not finished",
        },
        takes="CHAT [TEXT]",
    ),
    "submit": Manual(
        {
            "onward submit hello.dot --priority 5": "a worker takes it before others",
            "onward submit hello.dot --from-jsonl runs.jsonl": "a run for every line",
        },
        {**LOOK, FINE: "the run is queued", USAGE: "the command line or the pipeline is wrong"},
        takes="FILE|NAME",
    ),
}
