"""A registered pipeline means the same without the directory of its file."""

from __future__ import annotations

import pytest

from onward.pipeline.graph import BUILT_IN_TYPES
from onward.pipeline.rules.check import REGISTERED, check
from tests.pipeline.reading import body

CHILD, WORKDIR = "stack.child_dotfile", "stack.child_workdir"


def found(statements: str) -> list[tuple[str, str, str | None]]:
    graph = body(statements)
    findings = check(graph, known_types=BUILT_IN_TYPES, rules=REGISTERED)
    return [(one.rule, one.message, one.fix) for one in findings]


@pytest.mark.parametrize(
    "statements",
    [
        "a [prompt=x]",
        f'm [shape=house, {CHILD}="child"]',
        f'graph [{CHILD}="child@2"]; m [shape=house]',
        f'graph [{CHILD}="child.dot"]; a [prompt=x]',
        f'graph [workspace="/srv/site", {CHILD}="child"]; m [shape=house, {WORKDIR}="/srv/place"]',
    ],
)
def test_names_and_absolute_paths_are_as_good_as_anywhere(statements: str) -> None:
    assert found(statements) == []


@pytest.mark.parametrize(
    ("statements", "written", "meant"),
    [
        (f'm [shape=house, {CHILD}="parts/child.dot"]', "parts/child.dot", "child"),
        (f'graph [{CHILD}="/abs/my child.dot"]; m [shape=house]', "/abs/my child.dot", "NAME"),
    ],
)
def test_a_child_in_a_file_is_to_be_registered_as_well(statements: str, written: str, meant: str) -> None:
    assert found(statements) == [
        (
            "children_registered",
            f"manager loop 'm' manages the file {written}, which is not stored with a registered pipeline",
            f'register that file as well, and write its name: {CHILD}="{meant}"',
        )
    ]


def test_a_relative_directory_is_an_error_that_says_how_else_to_name_it() -> None:
    said = "is relative to the pipeline's file, which a registered pipeline does not have"
    assert found(f'graph [workspace="."]; m [shape=house, {CHILD}="child", {WORKDIR}="place"]') == [
        (
            "places_absolute",
            f"workspace of the graph {said}",
            "write an absolute path, or leave it out and name the directory with --workspace",
        ),
        ("places_absolute", f"{WORKDIR} of node 'm' {said}", "write an absolute path"),
    ]
