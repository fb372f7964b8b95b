"""What every file must have, must not be called, and must not mention."""

from __future__ import annotations

import ast
import re

import pytest

from tests.shape.tree import Module, modules, repository_files, show

# A name that says nothing about what is inside invites everything in.
EMPTY_NAMES = {
    "utils",
    "util",
    "helpers",
    "helper",
    "common",
    "base",
    "core",
    "manager",
    "service",
    "misc",
    "types",
}

# Whose machine it was, and where its packages came from, is nobody's business and breaks elsewhere.
# The patterns are in pieces so that this file does not match itself.
MACHINE_PATH = re.compile(r"(?<![\w.~$}-])/" + r"(?:root/[\w.]|work(?![\w-])|(?:home|Users)/[\w.])")
REGISTRY = re.compile(
    ":" + r"//[^\s\"'<>)]*(?:pypi|pythonhosted|npmjs|yarnpkg|artifactory|nexus|devpi|jfrog|/simple\b)"
    r"|^\s*(?:--(?:extra-)?index-url|--find-links|-i|-f)\s"
    "|file" + r":///\w",
    re.MULTILINE,
)
LOCKS = ("requirements*.txt", "package-lock.json")


def mentions(text: str, *, is_lock: bool = False) -> list[str]:
    """The machine paths and registry addresses in a text; in a lock file, every address."""
    found = [match.group() for pattern in (MACHINE_PATH, REGISTRY) for match in pattern.finditer(text)]
    return found + (re.findall(r"\S*" + ":" + r"//\S*", text) if is_lock else [])


def test_every_file_says_what_it_is_for() -> None:
    assert [show(module.path) for module in modules() if not module.docstring] == []


def test_every_file_is_named_after_what_is_inside() -> None:
    assert [show(module.path) for module in modules() if words_of(module) & EMPTY_NAMES] == []


def test_no_function_keeps_its_state_in_another() -> None:
    """A closure that changes variables of the function around it is a class that has no name yet."""
    changing = [
        show(module.path, node.lineno)
        for module in modules()
        if "nonlocal" in module.text
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Nonlocal)
    ]
    assert changing == []


def words_of(module: Module) -> set[str]:
    return {word for part in module.name.split(".") for word in part.split("_")}


def test_no_file_mentions_a_machine_or_a_registry() -> None:
    faults = []
    for path in repository_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture mentions nothing
        is_lock = any(path.match(pattern) for pattern in LOCKS)
        faults += [f"{show(path)}: {found}" for found in mentions(text, is_lock=is_lock)]
    assert not faults, "\n".join(faults)


def test_the_repository_is_seen_whole() -> None:
    assert {"pyproject.toml", "Makefile", "tests/shape/test_files.py"} <= {
        show(p) for p in repository_files()
    }


@pytest.mark.parametrize(
    "text",
    [
        "see /" + "root/.cache",
        "cd /" + "work/main",
        "open('/" + "home/jo/x')",
        "/" + "Users/jo",
        "https:" + "//pypi.org/simple/",
        "https:" + "//registry.npmjs.org/react/-/react-19.tgz",
        "--index-url somewhere",
        "--find-links wheels",
        "file:" + "///opt/wheels",
    ],
)
def test_a_mention_is_found(text: str) -> None:
    assert mentions(text)


@pytest.mark.parametrize(
    "text",
    [
        "/workers",
        "/api/work",
        "$HOME/work",
        "https:" + "//www.apache.org/licenses/",
        "sqlite:" + "///run.db",
        "-if",
    ],
)
def test_an_ordinary_text_is_not_found(text: str) -> None:
    assert not mentions(text)


def test_a_lock_may_hold_no_address_at_all() -> None:
    assert mentions("thing @ https:" + "//example.org/thing.whl", is_lock=True)
    assert not mentions("thing==1.0 \\\n    --hash=sha256:00", is_lock=True)
