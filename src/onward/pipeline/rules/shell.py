"""The rule about the variables that a shell command names, and how they are found in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onward.model.values import Variables
from onward.pipeline.graph import Graph, Node
from onward.pipeline.rules.rule import Problem, Subject, about

TOOL_KIND = "tool"
OURS = "ONWARD_"
COMMANDS = {"tool_command": "command", "tool_hooks.pre": "hook", "tool_hooks.post": "hook"}
# What every shell sets itself.
_SHELLS_OWN = frozenset(
    (
        *("_", "PWD", "OLDPWD", "IFS", "PPID", "OPTIND", "OPTARG", "PS1", "PS2", "PS4", "LINENO", "RANDOM"),
        *("SECONDS", "HOSTNAME", "UID", "EUID", "SHLVL", "REPLY"),
    )
)
_NAME = r"[A-Za-z_]\w*"
# `${NAME:-word}` and the like say what happens without the variable.
_USED = re.compile(rf"\$(?:({_NAME})|\{{#?({_NAME})(?!:?[-+=]))", re.ASCII)
_ASSIGNED = re.compile(
    rf"(?:^|[\s;&|(`])(?:({_NAME})\+?=|for\s+({_NAME})|getopts\s+\S+\s+({_NAME}))", re.ASCII | re.MULTILINE
)
_READ = re.compile(rf"\bread((?:[ \t]+-\w+|[ \t]+{_NAME})+)", re.ASCII)


def tool_variable(subject: Subject) -> Iterator[Problem]:
    """A command gets every variable that it names, as far as that is known here."""
    if subject.variables is None:
        return
    yield from _missing(subject.graph, subject.variables)
    for node in subject.graph.nodes.values():
        if node.kind == TOOL_KIND:
            yield from _missing(node, subject.variables)


def _missing(owner: Graph | Node, variables: Variables) -> Iterator[Problem]:
    for key, what in COMMANDS.items():
        for name, offset in variables_of(owner.text(key)).items():
            if name in variables.passed or name.startswith(OURS):
                continue
            uses = f"the {what} of {owner.subject} uses ${name}, which"
            if name in variables.present:
                fix = f'write tool_env = ["{name}"] in onward.toml'
                yield about(owner, f"{uses} commands do not get", key=key, offset=offset, fix=fix)
            else:
                fix = f"set it, and name it in tool_env; or write ${{{name}:-}} if it may be missing"
                yield about(owner, f"{uses} is not set here", key=key, offset=offset, fix=fix)


def variables_of(command: str) -> dict[str, int]:
    """The variables that a command takes from its environment, and where each is used first."""
    own = {name for found in _ASSIGNED.findall(command) for name in found} | _SHELLS_OWN
    for words in _READ.findall(command):
        own.update(words.split())
    found: dict[str, int] = {}
    for name, at in _used(command):
        if name not in own:
            found.setdefault(name, at)
    return found


def _used(command: str) -> Iterator[tuple[str, int]]:
    """Every variable that the shell would insert: not what is escaped, in single quotes or in a comment."""
    at, is_quoted = 0, False
    while at < len(command):
        sign = command[at]
        if sign == "\\":
            at += 1
        elif sign == '"':
            is_quoted = not is_quoted
        elif sign == "'" and not is_quoted:
            at = _after(command, "'", at + 1)
        elif sign == "#" and not is_quoted and command[at - 1 : at] in ("", " ", "\t", "\n", ";"):
            at = _after(command, "\n", at)
        elif sign == "$" and (used := _USED.match(command, at)):
            yield used[1] or used[2], at
            at = used.end() - 1
        at += 1


def _after(command: str, sign: str, at: int) -> int:
    """Where the next such sign is, or the end."""
    found = command.find(sign, at)
    return len(command) if found < 0 else found
