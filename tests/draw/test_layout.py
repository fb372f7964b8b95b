"""The layout, for any graph: everything has its place, nothing lies on top of another."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onward.draw.geometry import Box, Direction, Layout, LayoutLine, Point, Route, Size
from onward.draw.layers import CELLS_MAX, loops_back, make_grid, ranks_of, reading_order
from onward.draw.layout import lay_out

NEAR = 0.01
SIZES = st.builds(Size, st.integers(40, 300), st.integers(20, 120))
CAPTIONS = st.none() | st.builds(Size, st.integers(10, 150), st.integers(10, 40))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Size], list[LayoutLine]]:
    """Any graph: cycles, loops, parallel edges, nodes that nothing leads to."""
    sizes = draw(st.lists(SIZES, min_size=1, max_size=14))
    ends = st.integers(0, len(sizes) - 1)
    wires = draw(st.lists(st.builds(LayoutLine, ends, ends, CAPTIONS), max_size=30))
    return sizes, wires


def overlap(one: Box, other: Box) -> bool:
    return (
        min(one.right, other.right) - max(one.left, other.left) > NEAR
        and min(one.bottom, other.bottom) - max(one.top, other.top) > NEAR
    )


def points_on(route: Route) -> list[Point]:
    """The line in small pieces."""
    points, here = [route.start], route.start
    for first, second, end in route.curves:
        for step in range(1, 9):
            t = step / 8
            a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
            points.append(
                Point(
                    a * here.x + b * first.x + c * second.x + d * end.x,
                    a * here.y + b * first.y + c * second.y + d * end.y,
                )
            )
        here = end
    return points


def is_on_rim(point: Point, box: Box) -> bool:
    across = box.left - NEAR <= point.x <= box.right + NEAR
    down = box.top - NEAR <= point.y <= box.bottom + NEAR
    at_side = min(abs(point.x - box.left), abs(point.x - box.right)) < NEAR
    at_end = min(abs(point.y - box.top), abs(point.y - box.bottom)) < NEAR
    return (across and at_end) or (down and at_side)


def is_inside(point: Point, box: Box) -> bool:
    return box.left + NEAR < point.x < box.right - NEAR and box.top + NEAR < point.y < box.bottom - NEAR


@given(graphs(), st.sampled_from(Direction))
def test_every_box_has_a_place_of_its_own_on_the_page(
    graph: tuple[list[Size], list[LayoutLine]], direction: Direction
) -> None:
    sizes, wires = graph
    layout = lay_out(sizes, wires, start=0, direction=direction)
    assert [Size(box.width, box.height) for box in layout.boxes] == sizes
    captions = [route.caption for route in layout.routes if route.caption]
    everything = [*layout.boxes, *captions]
    assert not [pair for pair in combinations(everything, 2) if overlap(*pair)]
    for box in everything:
        assert box.left >= -NEAR
        assert box.top >= -NEAR
        assert box.right <= layout.size.width + NEAR
        assert box.bottom <= layout.size.height + NEAR


@given(graphs(), st.sampled_from(Direction))
def test_every_line_leads_from_its_box_to_its_box_and_through_none(
    graph: tuple[list[Size], list[LayoutLine]], direction: Direction
) -> None:
    sizes, wires = graph
    layout = lay_out(sizes, wires, start=0, direction=direction)
    assert len(layout.routes) == len(wires)
    for wire, route in zip(wires, layout.routes, strict=True):
        assert (route.caption is None) == (wire.caption is None)
        assert is_on_rim(route.start, layout.boxes[wire.tail])
        assert is_on_rim(route.end, layout.boxes[wire.head])
        crossed = [box for box in layout.boxes for point in points_on(route) if is_inside(point, box)]
        assert not crossed


@given(graphs())
def test_the_same_graph_gives_the_same_picture(graph: tuple[list[Size], list[LayoutLine]]) -> None:
    assert lay_out(*graph, start=0) == lay_out(*graph, start=0)


@given(graphs())
def test_without_the_edges_that_lead_back_every_edge_leads_on(
    graph: tuple[list[Size], list[LayoutLine]],
) -> None:
    sizes, wires = graph
    pairs = [(wire.tail, wire.head) for wire in wires]
    back = loops_back(len(sizes), pairs, 0)
    ranks = ranks_of(len(sizes), pairs, back, 0)
    order = reading_order(len(sizes), pairs, 0)
    assert sorted(order) == list(range(len(sizes)))
    for number, (tail, head) in enumerate(pairs):
        if number not in back:
            assert ranks[tail] < ranks[head]
            assert order.index(tail) < order.index(head)


def flowing(direction: Direction) -> Layout:
    return lay_out([Size(80, 40)] * 3, [LayoutLine(0, 1), LayoutLine(1, 2)], start=0, direction=direction)


@pytest.mark.parametrize(
    ("direction", "axis", "grows"),
    [
        (Direction.DOWN, "y", True),
        (Direction.UP, "y", False),
        (Direction.RIGHT, "x", True),
        (Direction.LEFT, "x", False),
    ],
)
def test_the_graph_flows_as_rankdir_says(direction: Direction, axis: str, grows: bool) -> None:
    places = [getattr(box, axis) for box in flowing(direction).boxes]
    assert places == sorted(places, reverse=not grows)
    assert len(set(places)) == 3


def test_a_chain_is_a_straight_line() -> None:
    assert {box.x for box in flowing(Direction.DOWN).boxes} == {40}


def test_an_empty_graph_is_an_empty_page() -> None:
    assert lay_out([], []) == Layout(Size(0, 0), (), ())


def test_work_stays_bounded_when_many_edges_span_many_ranks() -> None:
    count = 2_000
    chain = [LayoutLine(node, node + 1) for node in range(count - 1)]
    long = [LayoutLine(node, count - 1 - node) for node in range(count // 2)]
    grid = make_grid([Size(80, 40)] * count, [*chain, *long], 0)
    assert len(grid.layer_of) <= count + CELLS_MAX
    assert grid.outside
    layout = lay_out([Size(80, 40)] * count, [*chain, *long], start=0)
    outside = {strand.wire for strand in grid.outside}
    edge = max(box.right for box in layout.boxes)
    assert all(max(point.x for point in points_on(layout.routes[wire])) > edge for wire in outside)


def test_two_thousand_nodes_deeper_than_any_stack() -> None:
    """A chain with a loop from its end to its beginning, and as wide a fan: neither recurses."""
    count = 2_000
    chain = [LayoutLine(node, (node + 1) % count) for node in range(count)]
    deep = lay_out([Size(80, 40)] * count, chain, start=0)
    assert [route.is_back for route in deep.routes] == [False] * (count - 1) + [True]
    fan = [LayoutLine(0, node) for node in range(1, count)]
    wide = lay_out([Size(80, 40)] * count, fan, start=0)
    assert len({box.y for box in wide.boxes}) == 2
