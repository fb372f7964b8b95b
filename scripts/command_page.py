"""The page about the commands: a list; of each what it does, its arguments, examples and exit codes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onward.cli.main import COMMANDS, GROUPS, function_of, make_app, room_of
from onward.cli.manual import MANUAL, description
from onward.cli.options import Common

SHARED = {f"--{field}" for field in Common.__dataclass_fields__}


def command_page(generated: str) -> str:
    """Every command under the heading that it has in the help; each has a row of the manual."""
    missing = [name for name, _, _ in COMMANDS if name not in MANUAL]
    if missing:
        raise SystemExit(f"give these commands examples and exit codes in cli/manual/: {', '.join(missing)}")
    lines = [
        *("# Commands", "", generated, ""),
        "`onward COMMAND --help` prints the same in the terminal. Before or after every command: `--db`,",
        "`--json`, `--app`, `--server`, `--profile`, `--runs`, `--files`",
        "([configuration](configuration.md)). The output of `--json`: [JSON](json.md). With `--server URL`",
        "(`ONWARD_SERVER`) or `--profile NAME`, commands that show or change runs, and",
        "`submit`, use a server instead of a database.",
        *("", "| command | what it does |", "|---|---|"),
        *(f"| [`{name}`](#onward-{name}) | {says} |" for name, _, says in COMMANDS),
    ]
    app = make_app()
    for room, title in GROUPS.items():
        lines += ["", f"## {title}"]
        for name, module, _ in COMMANDS:
            if room_of(module) == room:
                arguments = [*app[name].assemble_argument_collection(default_parameter=app.default_parameter)]
                lines += _command(name, description(function_of(name, module)), arguments)
    return "\n".join(lines) + "\n"


def _command(name: str, says: str, arguments: Sequence[Any]) -> Iterator[str]:
    shown = [one for one in arguments if one.parse and one.show and not SHARED & {*one.names}]
    yield from ("", f"### onward {name}", "", says, "")
    if shown:
        yield from ("| argument | meaning |", "|---|---|")
        for one in shown:
            names = ", ".join(f"`{name}`" for name in one.names)
            yield f"| {names} | {(one.parameter.help or '').replace('|', chr(92) + '|')} |"
        yield ""
    yield from ("| example | what it does |", "|---|---|")
    for line, what in MANUAL[name].examples.items():
        yield f"| `{line.replace('|', chr(92) + '|')}` | {what} |"
    yield from ("", "| exit code | meaning |", "|---|---|")
    for code, what in MANUAL[name].exits.items():
        yield f"| {code} | {what} |"
