"""Examples and exit codes of every command, for `--help` and `docs/commands.md`.

A `Manual` is what the help of a command says besides its flags. There is one for every command, under the
headings of the help; many share their exit codes. Last come the functions that make the help of a command
from its manual and its signature.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from inspect import Parameter, cleandoc, signature
from textwrap import fill

import msgspec

from onward.cli.output import FAILED, FINE, INTERRUPTED, UNFINISHED, USAGE

Codes = Mapping[int | str, str]
REFUSED = "the request was refused, or the database could not be used"
MISUSED = "the command line is wrong, or something that it names cannot be read"
LOOK: Codes = {FINE: "done", FAILED: REFUSED, USAGE: MISUSED, INTERRUPTED: "Ctrl-C"}
RUN: Codes = {
    FINE: "the run completed",
    FAILED: f"the run failed or was cancelled; or {REFUSED}",
    USAGE: "the command line or the pipeline is wrong; nothing was executed",
    UNFINISHED: "the run is not finished and can be continued: waiting, paused or interrupted",
}
CONTINUE: Codes = {**RUN, FINE: "the run completed; with --queue, it is queued"}
ENDED = "the run ended before it could be stopped, and failed"


class Manual(msgspec.Struct, frozen=True):
    """What the help of a command says besides its flags. `examples`: a command line, and what it does."""

    examples: Mapping[str, str]
    exits: Codes
    takes: str = ""
    """The names behind a command, if its signature does not say them well."""


RUNNING: Mapping[str, Manual] = {
    "validate": Manual(
        {"onward validate hello.dot": "list all problems, with line and column"},
        {
            FINE: "valid, perhaps with warnings",
            USAGE: "the pipeline cannot run, or cannot be read",
        },
    ),
    "run": Manual(
        {
            "onward run hello.dot": "run it here, from the start",
            "onward run hello.dot --simulate": "simulate it: every step succeeds, and nothing is executed",
            "onward run hello.dot --set topic=tea --set count:=3": "set context values",
            "onward run site.py:build --set topic=tea": "the flow `build` in a Python file",
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
            "onward resume 4k7m2q --dry-run": "print what would run, change nothing",
            "onward resume 4k7m2q --accept-changes": "use the changed pipeline file",
            "onward resume 4k7m2q --raise day.tokens=400000": "first raise the limit that stopped it",
        },
        {
            **CONTINUE,
            FINE: "the run completed; with --queue, it is queued; with --dry-run, the plan was printed",
        },
    ),
    "replay": Manual(
        {
            "onward replay 4k7m2q --from write --set topic=tea": "fork before a step, with a different value",
            "onward checkpoints 4k7m2q": "list all points where a fork can start",
            "onward replay 4k7m2q --checkpoint 9": "fork at one of them, and run",
        },
        {**RUN, FINE: "the fork completed; with --no-run, it was created"},
    ),
    "chat": Manual(
        {
            'onward chat site-7 "build me a landing page" --watch': "start a run, and execute it here",
            'onward chat site-7 "continue?"': "resume the run that stopped",
            'onward chat site-7 "a shop instead" --fresh': "cancel the old run, and start over",
        },
        {
            FINE: "the message is stored and will be processed; with --watch, its run completed",
            FAILED: "the message is stored, but could not be processed; with --watch, its run failed; or "
            f"{REFUSED}",
            USAGE: MISUSED,
            UNFINISHED: "the chat waits for an answer; with --watch, its run is not finished",
        },
        takes="CHAT [TEXT]",
    ),
    "submit": Manual(
        {
            "onward submit hello.dot --priority 5": "a worker claims it before runs of lower priority",
            "onward submit hello.dot --from-jsonl runs.jsonl": "one run per line",
        },
        {**LOOK, FINE: "the run is queued", USAGE: "the command line or the pipeline is wrong"},
        takes="FILE|NAME",
    ),
}


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
        {
            "onward show 4k7m2q": "everything that happened in a run",
            "onward show 4k7m2q test": "one of its steps",
        },
        LOOK,
    ),
    "logs": Manual(
        {
            "onward logs 4k7m2q": "the output of its steps",
            "onward logs 4k7m2q test --stderr --follow": "the standard error of one step, live",
        },
        LOOK,
    ),
    "messages": Manual(
        {
            "onward messages 4k7m2q --follow": "the messages of its models, until it stops",
            "onward messages 4k7m2q --after 812 --json": "continue after a position",
        },
        LOOK,
        takes="RUN|CHAT",
    ),
    "events": Manual(
        {
            "onward events 4k7m2q --follow": "the log, and new events as they are appended",
            "onward events 4k7m2q --after 12 --json": "one JSON object per line, from event 13",
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
    "files": Manual({"onward files 4k7m2q --out copy": "write the run's files to copy/"}, LOOK),
    "receipts": Manual(
        {"onward receipts 4k7m2q": "list them, and rewrite those that contradict the log"},
        {**LOOK, FAILED: f"something still contradicts the log; or {REFUSED}"},
    ),
    "calls": Manual(
        {
            "onward calls 4k7m2q": "model requests, effects and functions, with tokens and cost",
            "onward calls 4k7m2q --step write": "only the calls of one node",
        },
        LOOK,
    ),
    "artifacts": Manual(
        {
            "onward artifacts 4k7m2q": "list them",
            "onward artifacts 4k7m2q report --out report.md": "write one to a file",
        },
        LOOK,
    ),
    "notifications": Manual(
        {
            "onward notifications --failed": "failed notifications, and why they failed",
            "onward notifications --retry ID": "deliver one notification again",
        },
        LOOK,
    ),
    "chats": Manual(
        {
            "onward chats": "the chats, newest first",
            "onward chats site-7": "one chat: its runs, its messages, and what is pending",
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


DECIDING: Mapping[str, Manual] = {
    "retry": Manual({"onward retry 4k7m2q": "retry the stopped step, and continue"}, CONTINUE),
    "skip": Manual({"onward skip 4k7m2q": "continue after the stopped step"}, CONTINUE),
    "abort": Manual({"onward abort 4k7m2q": "cancel the run; nothing is undone"}, LOOK),
    "pause": Manual(
        {"onward pause 4k7m2q": "stop after the current step", "onward pause 4k7m2q --after now": "stop now"},
        {
            FINE: "the run is paused, or completed before it could pause; with --no-wait, the request is "
            "stored",
            FAILED: f"{ENDED}; or {REFUSED}",
            USAGE: MISUSED,
            UNFINISHED: "the request is stored, and the run did not stop in time, or was interrupted",
        },
    ),
    "cancel": Manual(
        {'onward cancel 4k7m2q --reason "wrong branch"': "cancel it for good"},
        {
            FINE: "the run is cancelled, or completed before that; with --no-wait, the request is stored",
            FAILED: f"{ENDED}; or {REFUSED}",
            USAGE: MISUSED,
            UNFINISHED: "the request is stored, and the run did not stop in time",
        },
    ),
    "dismiss": Manual(
        {"onward dismiss 4k7m2q": "messages in its chat no longer resume it; `onward resume` does"},
        LOOK,
    ),
    "steer": Manual(
        {'onward steer 4k7m2q "use the new API"': "the next agent step receives the instruction"}, LOOK
    ),
    "answer": Manual(
        {
            "onward answer": "the open gates of all runs",
            "onward answer 4k7m2q Yes": "choose, and continue the run",
            'onward answer 4k7m2q --reject --text "too slow" --no-run': "only store the answer",
        },
        {
            **RUN,
            FINE: "the run completed; with --no-run, the answer was stored; without a run, gates were listed",
        },
    ),
}


OPERATING: Mapping[str, Manual] = {
    "worker": Manual(
        {
            "onward worker --concurrency 8": "execute up to 8 runs at once, until a signal",
            "onward worker --until-idle": "stop when no run is due",
        },
        {
            FINE: "stopped as requested, and all its runs were returned to the queue",
            FAILED: f"runs were cut off at the end of the grace time; or {REFUSED}",
            USAGE: MISUSED,
        },
    ),
    "serve": Manual(
        {
            "onward serve": "on this machine only, at port 8765; prints a link to sign in",
            "onward serve --no-worker": "leave the execution to other workers",
        },
        {
            FINE: "stopped as requested, and all its runs were returned to the queue",
            FAILED: f"runs were cut off at the end of the grace time; or {REFUSED}",
            USAGE: "the command line or a setting is wrong, the port is in use, or others could read tokens",
        },
    ),
    "tokens": Manual(
        {
            "onward tokens": "who may use the server, and until when",
            "onward tokens add ci --role operator --expires 90d": "a new token, printed once",
            "onward tokens revoke ci": "revoke it, and end its sessions",
            "onward tokens link": "a one-time link to sign in with a browser",
        },
        LOOK,
        takes="[list | add NAME | revoke NAME | link]",
    ),
    "audit": Manual({"onward audit --limit 20": "the newest changes, and who requested them"}, LOOK),
    "workers": Manual({"onward workers": "which processes hold runs, and which are dead"}, LOOK),
    "recover": Manual(
        {"onward recover": "stop or requeue the runs of dead processes"},
        {**LOOK, FAILED: f"a run could not be recovered; or {REFUSED}"},
    ),
    "models": Manual(
        {
            "onward models": "which providers are set up, why others are not, and prices",
            "onward models --all": "all known prices",
            "onward models --json": "for a program",
        },
        {FINE: "done", USAGE: MISUSED},
    ),
    "tools": Manual(
        {
            "onward tools": "all tools, which of them need approval, and which may be repeated",
            "onward tools --json": "as JSON, with the descriptions sent to models",
        },
        {FINE: "done", USAGE: MISUSED},
    ),
    "limits": Manual(
        {
            "onward limits": "limits, spending and reservations",
            "onward limits set day tokens 200000": "for every UTC day",
            "onward limits set run/4k7m2q cost 2.50": "dollars, for one run; 0 means no limit",
            "onward limits reset day": "remove the limits that were set for it",
        },
        LOOK,
        takes="[show | set SCOPE KEY VALUE | reset SCOPE]",
    ),
    "pipelines": Manual(
        {
            "onward pipelines": "what is registered, and which versions new runs use",
            "onward pipelines add site.dot": "check it, and store it as the next version of its name",
            "onward pipelines show site --version 1": "the source of a version, and all versions",
            "onward pipelines enable site 1": "let new runs use version 1 again",
            "onward pipelines remove site": "new runs can no longer use it",
        },
        LOOK,
        takes="[list | add FILE | show NAME | enable NAME VERSION | remove NAME]",
    ),
    "stats": Manual({"onward stats --json": "the summary as JSON"}, LOOK),
    "effect": Manual(
        {
            "onward effect charge-42 -- ./charge.sh 42": "charge once, even if this is called again",
            "onward effect charge-42": "show its state",
            "onward effect charge-42 --forget": "it was not done; the next call runs it",
        },
        {
            FINE: "done; with a command, the command's own exit code",
            FAILED: REFUSED,
            USAGE: MISUSED,
            UNFINISHED: "the effect is in doubt, or another process is running it",
            126: "the command cannot be executed",
            127: "the command was not found",
            "128+N": "the command was ended by signal N",
        },
        takes="KEY [-- COMMAND...]",
    ),
    "gc": Manual(
        {
            "onward gc --older-than 90d --dry-run": "what would be deleted",
            "onward gc --keep 100 --status completed,failed": "keep the newest hundred",
        },
        LOOK,
    ),
    "export": Manual(
        {
            "onward export --all --out backup.jsonl.zst": "everything, compressed",
            "onward export 4k7m2q | onward import - --db other.db": "one run, into another database",
        },
        {**LOOK, FAILED: f"the file exists, or the output was closed; or {REFUSED}"},
        takes="[RUN...]",
    ),
    "import": Manual(
        {"onward import backup.jsonl.zst --paused": "no imported run continues until it is resumed"},
        {**LOOK, FAILED: f"the file is not a valid export; or {REFUSED}"},
    ),
    "verify": Manual(
        {"onward verify": "all runs", "onward verify 4k7m2q": "one run"},
        {**LOOK, FAILED: f"something does not match its log; or {REFUSED}"},
    ),
    "doctor": Manual(
        {"onward doctor": "check the installation and the database"},
        {**LOOK, FAILED: f"something is BAD; or {REFUSED}"},
    ),
    "init": Manual(
        {"onward init shop": "in a new directory", "onward init": "here"},
        {FINE: "written", USAGE: f"one of its files already exists, or {MISUSED}"},
    ),
    "version": Manual({"onward version --json": "for a program"}, {FINE: "done", USAGE: MISUSED}),
    "completion": Manual(
        {
            "onward completion bash > ~/.local/share/bash-completion/completions/onward": "bash",
            'onward completion zsh > "${fpath[1]}/_onward"': "zsh",
            "onward completion fish > ~/.config/fish/completions/onward.fish": "fish",
        },
        {FINE: "done", USAGE: MISUSED},
    ),
}


WIDTH = 78
MANUAL: Mapping[str, Manual] = {**RUNNING, **LOOKING, **DECIDING, **OPERATING}
_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)


def description(place: str) -> str:
    """The docstring of a command, given as `module:function`, with its paragraphs on one line each."""
    module, _, function = place.partition(":")
    said = cleandoc(getattr(import_module(module), function).__doc__ or "")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in said.split("\n\n"))


def usage(name: str, place: str) -> str:
    """The line that says what a command takes, with a name for every argument; options go last, as typed."""
    module, _, function = place.partition(":")
    found = signature(getattr(import_module(module), function)).parameters.values()
    taken = MANUAL[name].takes or " ".join(_taken(one) for one in found if one.kind in _BY_PLACE)
    return " ".join(filter(None, ("Usage: onward", name, taken, "[OPTIONS]")))


def _taken(parameter: Parameter) -> str:
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return f"[{parameter.name.upper()}...]"
    return parameter.name.upper() if parameter.default is Parameter.empty else f"[{parameter.name.upper()}]"


def epilogue(name: str) -> str:
    """What stands below the flags in the help of a command."""
    manual = MANUAL.get(name)
    if manual is None:
        return ""
    examples = "\n".join(f"  {line}\n      {says}" for line, says in manual.examples.items())
    codes = "\n".join(
        fill(says, WIDTH, initial_indent=f"  {code:<6}", subsequent_indent=" " * 8)
        for code, says in manual.exits.items()
    )
    return f"Examples:\n{examples}\n\nExit codes:\n{codes}"
