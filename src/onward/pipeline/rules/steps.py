"""Rules about what single steps do: ask a person, run a command, use tools, put values into texts.

- The questions and choices of a human gate are valid.
- A shell step has a command, and the command gets the variables that it names.
- An agent's tools: a name that is nearly one of ours allows nothing.
- Values in texts: a name that nothing can set is a typo.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches

from msgspec.structs import replace

from onward.errors import InvalidInput
from onward.model.context import (
    CONTEXT_PREFIX,
    CURRENT_NODE,
    GRAPH,
    INTERNAL,
    OUTCOME,
    PREFERRED_LABEL,
    references,
    variable_of,
)
from onward.model.values import BUILT_IN_TOOLS, Variables
from onward.pipeline.gate import Unaskable, question_of
from onward.pipeline.graph import DEFAULT_KIND, Edge, Graph, Node
from onward.pipeline.rules.rule import Problem, Rule, Subject, about, owner_of
from onward.pipeline.vocabulary import NODE_ATTRIBUTES, meant

GATE = "wait.human"


def human_gate(subject: Subject) -> Iterator[Problem]:
    """A gate's edges fit its type, and its default choice is one of them."""
    graph = subject.graph
    for node in graph.nodes.values():
        if node.kind != GATE or not graph.outgoing(node.id):
            continue  # the rule dead_end reports it
        try:
            question_of(graph, node)
        except Unaskable as error:
            yield about(node, str(error), key=error.key)
        except (ValueError, InvalidInput):
            pass  # attribute_type reports it


TOOL, COMMAND, VARIABLE = "tool", "tool_command", "tool_variable"


def tool_command(subject: Subject) -> Iterator[Problem]:
    """A tool node has a command; without one, its step can only fail."""
    graph = subject.graph
    silent = {*graph.starts, *graph.exits}
    for node in graph.nodes.values():
        if node.kind == TOOL and node.id not in silent and not node.text(COMMAND).strip():
            message = f"tool node {node.id!r} has no command to run"
            typo = misspelt_command(node)
            if typo:
                yield about(node, message, key=typo, fix=f"{typo} has no effect; did you mean {COMMAND}?")
            else:
                yield about(node, message, key=COMMAND, fix=f'write {COMMAND}="..."')


def misspelt_command(node: Node) -> str:
    """The attribute of a tool node that was meant to be its command, if it has none; else empty."""
    if node.kind != TOOL or COMMAND in node.attrs:
        return ""
    unknown = (key for key in node.attrs if key in node.written and key not in NODE_ATTRIBUTES)
    return next((key for key in unknown if meant(key, (COMMAND,))), "")


def rules_beside(kind: str, rules: Sequence[Rule]) -> list[Rule]:
    """The rules for an app with its own handler of a kind: its own tool handler may need no command."""
    if kind != TOOL:
        return list(rules)
    return [replace(rule, find=_nothing) if rule.name in (COMMAND, VARIABLE) else rule for rule in rules]


def _nothing(subject: Subject) -> Iterator[Problem]:
    yield from ()


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
                yield about(owner, f"{uses} commands do not receive", key=key, offset=offset, fix=fix)
            elif name == "goal":
                uses = f"the {what} of {owner.subject} uses ${name}, which only prompts"
                fix = f'write "${variable_of(name)}"'
                yield about(owner, f"{uses} replace", key=key, offset=offset, fix=fix)
            else:
                fix = f"set it, and name it in tool_env; or write ${{{name}:-}} if it may be unset"
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


ALLOWED = "allowed_tools"
FOREIGN: Mapping[str, str] = {
    "bash": "shell",
    "grep": "search",
    "glob": "list",
    "ls": "list",
    "multiedit": "edit",
    "webfetch": "http_get",
    "fetch": "http_get",
}
"""What other programs call tools like ours."""


def tool_known(subject: Subject) -> Iterator[Problem]:
    """No tool that is allowed is a built-in one with a typo, or under another program's name.

    Apps and servers may offer tools of any other name, so that those are looked up only before a run begins.
    """
    graph = subject.graph
    yield from _unknown(graph)
    for node in graph.nodes.values():
        if ALLOWED in node.written:
            yield from _unknown(node)


def _unknown(owner: Graph | Node) -> Iterator[Problem]:
    for written in owner.text(ALLOWED).split(","):
        name, bracket, _ = written.strip().partition("(")
        if not name or (not bracket and name in BUILT_IN_TOOLS) or "*" in name:
            continue
        ours = meant(name, BUILT_IN_TOOLS) or FOREIGN.get(name.lower(), "")
        if ours:
            message = f"{ALLOWED} of {owner_of(owner, ALLOWED)} has {written.strip()!r}, which is not a tool"
            fix = f"write {ours}"
            if bracket:
                fix += "; its use cannot be restricted here, but each use can require approval"
            yield about(owner, message, key=ALLOWED, fix=fix)


GATE_KIND, FAN_IN = "wait.human", "parallel.fan_in"
HUMAN = "human.gate."
RETRIES = f"{INTERNAL}retry_count."
_KNOWN = (
    *("goal", OUTCOME, PREFERRED_LABEL, CURRENT_NODE, "last_stage", "last_response", "tool.output"),
    *(f"{HUMAN}{name}" for name in ("selected", "label", "text", "data")),
    *("parallel.results", "parallel.fan_in.best_id", "parallel.fan_in.best_outcome"),
)
_ALIKE = 0.84
_TEXTS = {
    DEFAULT_KIND: ("prompt", "label"),
    FAN_IN: ("prompt",),
    GATE_KIND: ("human.question", "human.show", "prompt", "label"),
}


def value_known(subject: Subject) -> Iterator[Problem]:
    """A text names no value that nothing can set, and none that is nearly one of the engine's."""
    graph = subject.graph
    names = (
        *_KNOWN,
        *(f"{GRAPH}{key}" for key in graph.attrs),
        *(f"{RETRIES}{name}" for name in graph.nodes),
    )
    known = dict.fromkeys(names)
    for owner, key in _texts(graph):
        text = owner.text(key)
        for name, _ in references(text) if "$" in text else ():
            hint = _hint(name, known)
            if hint is not None:
                message = f"{key} of {owner.subject} names {_written(name)}, {hint}"
                yield about(owner, message, key=key, fix=f"for the literal text write ${_written(name)}")


def _texts(graph: Graph) -> Iterator[tuple[Node | Edge, str]]:
    for node in graph.nodes.values():
        for key in _TEXTS.get(node.kind, ()):
            if key in node.attrs:
                yield node, key
        if node.kind == GATE_KIND:
            yield from ((edge, "label") for edge in graph.outgoing(node.id) if edge.label)


def _hint(name: str, known: Collection[str]) -> str | None:
    """What is odd about a name; None if a handler or `--set` may give it a value."""
    # With the prefix, the author says that it is a value of the context, however it looks.
    if name in known or name.startswith((CONTEXT_PREFIX, f"{HUMAN}data.")):
        return None
    near = get_close_matches(name, known, n=1, cutoff=_ALIKE)
    if name.startswith((GRAPH, INTERNAL, HUMAN)):
        return "which nothing sets" + (f"; did you mean {_written(near[0])}?" if near else "")
    return f"which is nearly {_written(near[0])}; did you mean that?" if near else None


def _written(name: str) -> str:
    return f"${name}" if name.isidentifier() else f"${{{name}}}"
