"""The drawing for a terminal."""

from __future__ import annotations

from dataclasses import replace

from onward.draw.geometry import cells
from onward.draw.scene import Jump, NodeState, NodeStatus, Scene, States, make_scene
from onward.draw.text import to_rows
from tests.draw.pictures import FAN, RELEASE, graph_of, scene_of


def drawn(scene: Scene, *, width: int | None = None, is_ascii: bool = False) -> str:
    rows = to_rows(scene, width=width, is_ascii=is_ascii)
    return "".join("".join(span.text for span in row) + "\n" for row in rows)


def half_way() -> Scene:
    """A run that failed its tests once, was repaired, and waits for a person."""
    graph = graph_of(RELEASE)
    done = ("start", "plan", "fix", "good", "notes")
    nodes = {node: NodeState() for node in graph.nodes}
    nodes |= {node: NodeState(NodeStatus.SUCCEEDED, visits=1) for node in done}
    nodes["write"] = NodeState(NodeStatus.SUCCEEDED, visits=2, retries=1)
    nodes["test"] = NodeState(NodeStatus.FAILED, visits=2, note="two tests failed")
    nodes["approve"] = NodeState(NodeStatus.WAITING, visits=1)
    taken = {(edge.source, edge.target): edge.order for edge in graph.edges}
    went = [("test", "fix"), ("test", "good"), ("fix", "write"), ("good", "notes")]
    states = States(nodes, {taken[ends]: 1 for ends in went}, (Jump("good", "plan", 3),))
    return make_scene(graph, states, title="release: run 4k7m2q, waiting")


def test_a_pipeline_reads_like_a_program() -> None:
    assert (
        drawn(scene_of(RELEASE))
        == """\
release

start    start
plan     agent         Plan the change
write    tool          Write it
test     tool          Run the tests
├─▷ good    if outcome=success
└─▷ fix     if outcome=fail

fix      agent         Fix what was found
└─▷ write ↑

good     conditional   All good?
├─▷ docs     if context.docs=wanted
└─▷ notes

docs     agent         Write the docs
notes    agent         Release notes
approve  human gate    Ship it?
├─▷ deploy    [Y] Yes
└─▷ plan   ↑  [N] Again

deploy   tool          Deploy
watch    manager loop  Watch the rollout
exit     exit

└─▷ edge   ↑ loops back   no arrow: leads to the next line
"""
    )


def test_a_run_shows_what_happened() -> None:
    assert (
        drawn(half_way())
        == """\
release: run 4k7m2q, waiting

✓ start    succeeded                     start
✓ plan     succeeded                     agent         Plan the change
✓ write    succeeded, 2 visits, 1 retry  tool          Write it
✗ test     failed, 2 visits              tool          Run the tests
    two tests failed
┣━▶ good    if outcome=success
┗━▶ fix     if outcome=fail

✓ fix      succeeded                     agent         Fix what was found
┗━▶ write ↑

✓ good     succeeded                     conditional   All good?
├─▷ docs     if context.docs=wanted
┣━▶ notes
┗┅▶ plan  ↑  jump  ×3

· docs     not reached                   agent         Write the docs
✓ notes    succeeded                     agent         Release notes
? approve  waiting                       human gate    Ship it?
├─▷ deploy    [Y] Yes
└─▷ plan   ↑  [N] Again

· deploy   not reached                   tool          Deploy
· watch    not reached                   manager loop  Watch the rollout
· exit     not reached                   exit

? waiting   ✗ failed   ✓ succeeded   · not reached
└─▷ edge   ┗━▶ edge taken   ↑ loops back   no arrow: leads to the next line
"""
    )


def test_branches_stand_one_after_the_other() -> None:
    assert (
        drawn(scene_of(FAN))
        == """\
fan

start  start
fan    fan-out
├─▷ lint
└─▷ test

lint   agent
└─▷ join

test   agent
deep   agent
join   fan-in
exit   exit

└─▷ edge   ↑ loops back   no arrow: leads to the next line
"""
    )


def test_a_node_that_leads_nowhere_says_so() -> None:
    source = (
        "digraph g { start [shape=Mdiamond]; exit [shape=Msquare]; a [prompt=x]; start -> a; start -> exit }"
    )
    assert "a      agent\n└ ends here\n\nexit   exit\n" in drawn(scene_of(source))


def test_no_row_is_wider_than_the_terminal() -> None:
    scene = half_way()
    wide = replace(scene, items=[replace(item, label="広い" * 40) for item in scene.items])
    for width in (8, 20, 33, 60, 80):
        assert all(cells(line) <= width for line in drawn(wide, width=width).splitlines())


def test_a_terminal_without_unicode_gets_plain_signs() -> None:
    text = drawn(half_way(), is_ascii=True)
    assert text.isascii()
    assert "`=> fix" in text
    assert "x test " in text


def test_nothing_that_a_terminal_obeys_is_drawn() -> None:
    scene = scene_of(RELEASE)
    loud = "\x1b[2Jgone\x07\r\nnext\u202e"
    items = [replace(item, label=loud, kind=loud) for item in scene.items]
    text = drawn(replace(scene, items=items, title="t"))
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(text)
    assert "gone next" in text
