"""The entry point: runs a command and returns its exit code. Commands are imported when they are called."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, NoReturn

from cyclopts import App, CycloptsError, Group, Parameter

from onward.cli.output import (
    FAILED,
    FINE,
    INTERRUPTED,
    Output,
    tell_defect,
    tell_error,
    tell_usage,
    with_command_first,
    with_script_joined,
    with_show,
)
from onward.cli.unhandled import redact_unhandled
from onward.config import load_settings, own_redactor, redactor_of
from onward.errors import InvalidInput, OnwardError
from onward.version import VERSION

if TYPE_CHECKING:
    from onward.cli.options import Common
    from onward.redact.redactor import Redactor

HELP = (
    "Durable runs of AI agent pipelines: kill a run at any point, and it continues after its last finished "
    "step."
)
EPILOGUE = (
    "Before or after every command: --db, --json, --app, --server, --profile, --runs, --files.\n\n"
    "Exit codes: 0 finished; 1 failed or refused; 2 wrong usage or pipeline; 75 unfinished, can be continued."
)
COMMANDS: Sequence[tuple[str, str, str]] = (
    ("init", "start/init", "Write a small project to start from."),
    ("validate", "start/check", "Check a pipeline file; nothing is executed."),
    ("run", "start/run", "Run a pipeline in the foreground."),
    ("simulate-script", "start/check", "Print a simulation script for a pipeline."),
    ("status", "look/status", "List runs, or show the status of one."),
    ("show", "look/show", "Show one run or one of its steps: what happened, and what is unfinished."),
    ("logs", "look/files", "Print the output of a run's commands and agents."),
    ("messages", "look/show", "Print the messages of a run's models, or of a chat."),
    ("events", "look/show", "Print a run's log."),
    ("checkpoints", "look/show", "List a run's checkpoints."),
    ("graph", "look/graph", "Draw a pipeline, or what a run did in it."),
    ("files", "look/files", "Write a run's files from its log."),
    ("receipts", "look/files", "List a run's receipts, check them against its log and rewrite them."),
    ("calls", "look/show", "List the calls inside a run's steps."),
    ("artifacts", "look/files", "List a run's artifacts, or fetch one."),
    ("resume", "start/resume", "Resume a stopped run."),
    ("retry", "decide/resume", "Retry the step that stopped."),
    ("skip", "decide/resume", "Skip the step that stopped and continue."),
    ("abort", "decide/resume", "Cancel a run that has stopped."),
    ("replay", "start/run", "Fork a run at a checkpoint and run the fork."),
    ("pause", "decide/control", "Stop a run so that it can be resumed."),
    ("cancel", "decide/control", "Cancel a run for good."),
    ("dismiss", "decide/control", "Stop suggesting a stopped run, and stop resuming it automatically."),
    ("steer", "decide/control", "Give a run's agents an instruction while it is running."),
    ("answer", "decide/resume", "Answer a gate and continue."),
    ("pipelines", "operate/pipelines", "List, add, show, enable and remove registered pipelines."),
    ("chat", "start/chat", "Send a message to a chat: resume, steer, answer or start a run."),
    ("chats", "look/chat", "List chats, or show one with its runs and messages."),
    ("submit", "start/submit", "Create one or many runs, for workers to execute."),
    ("serve", "operate/serve", "Serve the API and the web page, and execute runs."),
    ("tokens", "operate/access", "List, add and revoke the tokens of a server, or print a link to sign in."),
    ("audit", "operate/access", "List the changes requested over HTTP."),
    ("worker", "operate/workers", "Claim due runs and execute them."),
    ("workers", "operate/workers", "List the processes that hold runs."),
    ("recover", "operate/workers", "Find runs whose process died, and interrupt or requeue them."),
    ("notifications", "look/status", "List notifications, sent and pending."),
    ("models", "operate/check", "Show which model providers are set up, and the prices of models."),
    ("tools", "operate/check", "Show the tools that agents can be given, and their rules."),
    ("limits", "operate/limits", "Show, set or reset limits on tokens, cost and calls."),
    ("usage", "look/limits", "Show what calls cost, by day, run, chat, project, pipeline or model."),
    ("stats", "operate/status", "Summarize the database in numbers."),
    ("effect", "operate/effect", "Run a command at most once."),
    ("gc", "operate/storage", "Delete old runs that have ended."),
    ("export", "operate/storage", "Write whole runs to a file."),
    ("import", "operate/storage", "Import the runs of a file."),
    ("verify", "operate/check", "Check that all stored data matches the logs."),
    ("doctor", "operate/check", "Check the installation and the database."),
    ("version", "operate/about", "Print the version."),
    ("completion", "operate/about", "Print a completion script for a shell."),
)
"""The name of a command, its group in the help and its module, and what it does."""
WITHOUT_DATABASE = ("init", "validate")
ASK_SERVERS = frozenset(
    {
        *("status", "show", "events", "messages", "calls", "checkpoints", "logs", "chat", "chats"),
        "submit",
        *("resume", "retry", "skip", "abort", "answer", "pause", "cancel", "steer", "dismiss"),
    }
)
"""The commands that can ask a server instead of a database."""
GROUPS = {"start": "Run", "look": "Look", "decide": "Decide", "operate": "Operate"}
"""The headings of the help, by the group of a command."""
COMPLETE = "__complete"
"""What the completion scripts of shells call; people have no use for it."""
HELP_FLAGS = ("--help", "-h")


def main() -> NoReturn:
    """The command `onward`."""
    gc.disable()  # until the command starts: imports create no garbage, but many objects to look through
    sys.exit(run(sys.argv[1:], owns_process=True))


def run(tokens: Sequence[str], *, owns_process: bool = False) -> int:
    """Run one command line; the exit code.

    `owns_process`: what Python prints by itself is without secrets from now on, until the process has ended.
    """
    if tokens and tokens[0] == COMPLETE:
        return _complete(tokens[1:])
    own, others = _split(list(tokens))
    out = Output(is_json="--json" in own, words=own)
    out.redactor = _redactor()
    if owns_process:
        redact_unhandled(lambda: out.redactor)
    try:
        own = with_show(with_command_first(own))
        return out.close(_call([*with_script_joined(own), *others], out))
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as error:  # of a task or a callback of a user's function; Python would print its words
        if not isinstance(error.code, str):
            raise
        out.note(error.code)
        return FAILED
    except CycloptsError as error:
        return _tell_usage(own, _mistake(error), out)
    except OnwardError as error:
        return out.close(tell_error(out, error))
    except Exception as error:
        return tell_defect(out, error)


def _complete(words: Sequence[str]) -> int:
    """Print what can stand at the cursor."""
    from onward.cli.completion import complete

    out, index = Output(), int(words[0]) if words and words[0].isdecimal() else 0
    for line in complete(index, words[1:]):
        out.say(line)
    return FINE


def _redactor() -> Redactor:
    """Knows what this command must not print; settings that are wrong are told by the command itself."""
    try:
        return redactor_of(load_settings())
    except InvalidInput:
        return own_redactor()


def _tell_usage(tokens: Sequence[str], message: str, out: Output) -> int:
    """What is wrong with a command line, and whose help says more."""
    first = tokens[0] if tokens else ""
    if first.startswith("-") and not any(name in tokens for name, _, _ in COMMANDS):
        message = f"Unknown option: {first}."
    elif first.startswith("-"):
        message = f"{first} comes before the command; write it after, as in `onward status {first} …`."
    return tell_usage(out, message, first if first in (name for name, _, _ in COMMANDS) else "")


def _mistake(error: CycloptsError) -> str:
    from onward.cli.output import sentence

    return sentence(error, [name for name, _, _ in COMMANDS])


def _split(tokens: list[str]) -> tuple[list[str], list[str]]:
    """The command line, and from `--` on the words of another command."""
    at = tokens.index("--") if "--" in tokens else len(tokens)
    return tokens[:at], tokens[at:]


def make_app(explained: str | None = None) -> App:
    """Every command, by name; the modules are imported when they are needed.

    `explained` is the command whose help is asked for: it says all that its docstring and the manual say.
    """
    app = App(
        name="onward",
        help=HELP,
        help_epilogue=EPILOGUE,
        help_format="plaintext",
        version=VERSION,
        default_parameter=Parameter(negative=(), show_default=_shown_default),
        group_commands=Group("Flags", sort_key=len(GROUPS)),
    )
    groups = {room: Group(title, sort_key=order) for order, (room, title) in enumerate(GROUPS.items())}
    for order, (name, module, help) in enumerate(COMMANDS):
        place, group = function_of(name, module), groups[room_of(module)]
        told = _explained(name, place) if name == explained else {"help": help}
        app.command(place, name=name, group=group, sort_key=order, **told)
    return app


def function_of(name: str, module: str) -> str:
    """Where the function of a command is, as `module:function`."""
    function = f"{name}_" if iskeyword(name) else name.replace("-", "_")
    return f"onward.cli.commands.{module.partition('/')[2]}:{function}"


def room_of(module: str) -> str:
    """Which of `GROUPS` a command belongs to."""
    return module.partition("/")[0]


def _explained(name: str, place: str) -> dict[str, Any]:
    from onward.cli.manual import description, epilogue, usage

    return {"usage": usage(name, place), "help": description(place), "help_epilogue": epilogue(name)}


def _shown_default(value: Any) -> Any:
    """The default of a flag as its help shows it; what is off or absent by default needs no words."""
    return None if value is None or isinstance(value, bool) or value in ("", ()) else value


def _call(tokens: Sequence[str], out: Output) -> int:
    own, _ = _split(list(tokens))
    is_help = not own or any(flag in own for flag in HELP_FLAGS)
    app = make_app(own[0] if own and is_help else None)
    command, bound, given = app.parse_args(tokens, exit_on_error=False, print_error=False)
    if is_help:
        return _print_help(partial(command, *bound.args, **bound.kwargs), out)
    bound.arguments.update({name: out for name in given})
    if "common" in bound.signature.parameters and tokens[0] not in WITHOUT_DATABASE:
        _tell_place(tokens[0], bound.arguments.get("common"), out)
    _collect_from_now()
    result = command(*bound.args, **bound.kwargs)
    if isinstance(result, Coroutine):
        return _run_async(result)
    return result if isinstance(result, int) else FINE


def _print_help(show: Callable[[], object], out: Output) -> int:
    """Print the help; a reader that goes away has seen enough."""
    try:
        show()
        sys.stdout.flush()
    except SystemExit:  # what the printing library makes of a closed pipe
        pass
    except OSError as error:
        out.lose(sys.stdout, error)
    return FINE


def _tell_place(command: str, common: Common | None, out: Output) -> None:
    """Say which database is used. A command that cannot ask a server refuses one."""
    from onward.cli.operations import server_of, tell_place
    from onward.cli.options import COMMON

    server = server_of(common or COMMON)
    if server is None:
        tell_place(common or COMMON, out)
    elif command not in ASK_SERVERS:
        way = "leave it out" if server.named_by.startswith("--") else "unset it, or name a database with --db"
        raise InvalidInput(
            f"`onward {command}` works on the machine with the database and cannot use a server, which "
            f"{server.named_by} names; {way}."
        )


def _collect_from_now() -> None:
    """Enable collection again, without looking through what the imports created."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def _run_async(command: Coroutine[Any, Any, int]) -> int:
    import asyncio

    with asyncio.Runner() as runner:
        return runner.run(command)
