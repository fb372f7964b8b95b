"""Examples and exit codes of the commands under `Operate`."""

from __future__ import annotations

from collections.abc import Mapping

from onward.cli.exits import FAILED, FINE, UNFINISHED, USAGE
from onward.cli.manual.page import LOOK, MISUSED, REFUSED, Manual

OPERATING: Mapping[str, Manual] = {
    "worker": Manual(
        {
            "onward worker --concurrency 8": "execute up to 8 runs at once, until a signal",
            "onward worker --until-idle": "stop when nothing is due",
        },
        {
            FINE: "stopped as asked, and all its runs were handed back",
            FAILED: f"runs were cut off when the grace time ended; or {REFUSED}",
            USAGE: MISUSED,
        },
    ),
    "workers": Manual({"onward workers": "who holds runs, and who is dead"}, LOOK),
    "recover": Manual(
        {"onward recover": "stop or requeue the runs of dead processes"},
        {**LOOK, FAILED: f"a run could not be recovered; or {REFUSED}"},
    ),
    "models": Manual(
        {
            "onward models": "which providers are set up, and why not; what their models cost",
            "onward models --all": "the prices of all models that have one",
            "onward models --json": "for a program",
        },
        {FINE: "done", USAGE: MISUSED},
    ),
    "tools": Manual(
        {
            "onward tools": "which tools there are, which ask a person first, and which may be repeated",
            "onward tools --json": "for a program, with what the models are told",
        },
        {FINE: "done", USAGE: MISUSED},
    ),
    "limits": Manual(
        {
            "onward limits": "what is set, spent and reserved",
            "onward limits set day tokens 200000": "for every UTC day",
            "onward limits set run/4k7m2q cost 2.50": "dollars, for one run; 0 is no limit",
            "onward limits reset day": "forget what was set",
        },
        LOOK,
        takes="[show | set SCOPE KEY VALUE | reset SCOPE]",
    ),
    "pipelines": Manual(
        {
            "onward pipelines": "what is registered, and which versions new runs get",
            "onward pipelines add site.dot": "check it, and store it as the next version of its name",
            "onward pipelines show site --version 1": "the source of a version, and all versions",
            "onward pipelines enable site 1": "let new runs get version 1 again",
            "onward pipelines remove site": "let no new run have it",
        },
        LOOK,
        takes="[list | add FILE | show NAME | enable NAME VERSION | remove NAME]",
    ),
    "stats": Manual({"onward stats --json": "the database in numbers, for a program"}, LOOK),
    "effect": Manual(
        {
            "onward effect charge-42 -- ./charge.sh 42": "charge once, however often this is called",
            "onward effect charge-42": "how it stands",
            "onward effect charge-42 --forget": "it was not done: the next call runs it",
        },
        {
            FINE: "done; with a command, its own exit code is given",
            FAILED: REFUSED,
            USAGE: MISUSED,
            UNFINISHED: "it is in doubt, or under way elsewhere",
            126: "the command cannot be executed",
            127: "there is no such command",
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
        {**LOOK, FAILED: f"the file exists, or the reader of the output left; or {REFUSED}"},
        takes="[RUN...]",
    ),
    "import": Manual(
        {"onward import backup.jsonl.zst --paused": "nothing continues before it is resumed"},
        {**LOOK, FAILED: f"the file does not hold what an export writes; or {REFUSED}"},
    ),
    "verify": Manual(
        {"onward verify": "all runs", "onward verify 4k7m2q": "one run"},
        {**LOOK, FAILED: f"something does not match its log; or {REFUSED}"},
    ),
    "doctor": Manual(
        {"onward doctor": "check the installation and the database"},
        {**LOOK, FAILED: f"something is BAD; or {REFUSED}"},
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
