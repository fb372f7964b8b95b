"""The SVG: well formed whatever labels hold, complete, and telling no state by colour alone."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.draw.geometry import Box, cells, cut, outline, tame, width_of, wrap
from onward.draw.scene import Item, NodeState, NodeStatus, Scene, SceneLine, States, make_scene
from onward.draw.svg import DARK, LIGHT, MARKS, to_svg
from onward.pipeline.graph import SHAPE_KINDS
from tests.draw.pictures import FAN, RELEASE, graph_of, scene_of

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = [
    "<script>alert(1)</script>",
    "]]></style><svg onload='x'>",
    "&lt;b&gt; & \"quoted\" 'single' `tick`",
    "\x00\x01\x1b[31mred\x1b[0m\x07\x9b2J\ufffe\uffff",
    "\u202egnp.exe\u2066",
    "\ud800 alone",
    "javascript:alert(1)",
    "日本語のラベル" * 20,
    "x" * 5_000,
    "\n\n\n",
    "e\u0301" * 30,
    "",
]


def parsed(document: str) -> ElementTree.Element:
    return ElementTree.fromstring(document)


def texts(root: ElementTree.Element, tag: str) -> list[str]:
    return ["".join(element.itertext()) for element in root.iter(f"{SVG}{tag}")]


def hostile_scene(label: str) -> Scene:
    scene = scene_of(RELEASE)
    state = NodeState(NodeStatus.FAILED, note=label)
    items: list[Item] = [
        replace(item, label=label, kind=label or "tool", state=state) for item in scene.items
    ]
    lines: list[SceneLine] = [replace(line, label=label, condition=label, taken=2) for line in scene.lines]
    return replace(scene, title=label, items=items, lines=lines, has_run=True)


@pytest.mark.parametrize("label", HOSTILE)
def test_a_hostile_label_is_only_a_label(label: str) -> None:
    check_harmless(to_svg(hostile_scene(label)))


@given(st.text(max_size=60))
def test_any_label_gives_a_well_formed_picture(label: str) -> None:
    check_harmless(to_svg(hostile_scene(label)))


def check_harmless(document: str) -> None:
    root = parsed(document)
    tags = {element.tag.removeprefix(SVG) for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "style", "g", "rect", "text", "path", "polygon", "circle"}
    names = {name for element in root.iter() for name in element.attrib}
    assert not [name for name in names if name.startswith("on") or "href" in name]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", document)
    assert "url(" not in document
    assert "@import" not in document


def test_a_picture_has_a_title_a_role_and_every_node_and_edge() -> None:
    scene = scene_of(RELEASE)
    root = parsed(to_svg(scene))
    assert root.attrib["role"] == "img"
    assert root.findtext(f"{SVG}title") == "release"
    assert root.findtext(f"{SVG}desc") == "12 nodes, 14 edges"
    titles = texts(root, "title")
    for item in scene.items:
        assert [title for title in titles if title.startswith(item.id)]
    assert "test → fix; if outcome=fail" in titles
    assert len(root.findall(f".//{SVG}path[@class='line']")) == len(scene.lines)


def test_what_is_shortened_is_whole_in_its_title() -> None:
    condition = "outcome=success && context.a=1 && context.b=2 && context.c=3"
    source = RELEASE.replace('condition="outcome=fail"', f'condition="{condition}"')
    root = parsed(to_svg(scene_of(source)))
    assert any(condition in title for title in texts(root, "title"))
    shown = [text for text in texts(root, "text") if text.startswith("outcome=success &&")]
    assert [(len(text) <= 30, text[-1]) for text in shown] == [(True, "…")]


def test_every_state_is_said_in_words_and_by_a_mark() -> None:
    graph = graph_of(RELEASE)
    for status in NodeStatus:
        states = States({node: NodeState(status, visits=3, retries=1) for node in graph.nodes}, {}, ())
        document = to_svg(make_scene(graph, states, title="t"))
        assert f">{status.value}, 3 visits, 1 retry</text>" in document
        assert document.count(MARKS[status].drawing) == len(graph.nodes) + 1  # and the legend
    assert len({mark.sign for mark in MARKS.values()}) == len(NodeStatus)
    assert len({mark.plain for mark in MARKS.values()}) == len(NodeStatus)
    assert len({mark.drawing for mark in MARKS.values()}) == len(NodeStatus)
    assert set(LIGHT) == set(DARK) == set(NodeStatus)


def test_the_way_taken_is_told_from_the_rest() -> None:
    graph = graph_of(RELEASE)
    states = States({node: NodeState() for node in graph.nodes}, {0: 2}, ())
    root = parsed(to_svg(make_scene(graph, states, title="t")))
    titles = texts(root, "title")
    assert "start → plan; taken 2 times" in titles
    assert "plan → write; not taken" in titles
    assert "×2" in texts(root, "text")
    assert len(root.findall(f".//{SVG}g[@class='taken']/{SVG}polygon[@class='tip']")) == 1


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("tints", [LIGHT, DARK], ids=["light", "dark"])
def test_small_words_can_be_read_on_their_ground(tints: dict[NodeStatus, tuple[str, str, str]]) -> None:
    for status, (fill, _, words) in tints.items():
        dark, light = sorted((luminance(fill), luminance(words)))
        assert (light + 0.05) / (dark + 0.05) >= 4.5, status


def test_every_shape_of_the_dialect_looks_different() -> None:
    drawn = {}
    for shape in SHAPE_KINDS:
        scene = scene_of(FAN)
        item = replace(scene.items[0], id="n", label="same", kind="same", shape=shape)
        document = to_svg(replace(scene, items=[item], lines=[], start=0))
        parts = re.sub(r"[\d.]+", "", document.partition("same (same)")[2])
        drawn[shape] = parts, tuple(outline(shape, Box(0, 0, 120, 60)))
    assert len(set(drawn.values())) == len(SHAPE_KINDS)


@given(st.text(max_size=80), st.integers(2, 20), st.integers(1, 4))
def test_wrapped_text_fits(text: str, room: int, lines_max: int) -> None:
    lines = wrap(text, room, lines_max)
    assert len(lines) <= lines_max
    assert all(cells(line) <= room for line in lines)
    assert cells(cut(text, room)) <= room
    assert tame(tame(text)) == tame(text)
    assert width_of(text, 10) >= 0
