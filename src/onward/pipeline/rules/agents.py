"""The rule about the tools that agents are allowed: a name that is nearly one of ours allows nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onward.model.values import BUILT_IN_TOOLS
from onward.pipeline.graph import Graph, Node
from onward.pipeline.rules.rule import Problem, Subject, about, owner_of
from onward.pipeline.rules.words.vocabulary import meant

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
            message = f"{ALLOWED} of {owner_of(owner, ALLOWED)} has {written.strip()!r}, which is no tool"
            fix = f"write {ours}"
            if bracket:
                fix += "; what it is used for cannot be limited here, but each use can need approval"
            yield about(owner, message, key=ALLOWED, fix=fix)
