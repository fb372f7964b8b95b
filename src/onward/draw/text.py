"""A picture for a terminal: a list that reads like a program, because that is what a pipeline is.

Each node has a line, in an order in which everything stands below what leads to it. A node without arrows
leads to the line below it; all others name where they lead, and `↑` marks a loop. A heavy arrow was taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from onward.draw.layout.measure import cells, cut, one_line
from onward.draw.scene import Item, Line, Scene
from onward.draw.states import Standing
from onward.draw.svg.palette import MARKS

NAME_ROOM, NOTE_ROOM = 32, 200
EXPLAINED = (Standing.FAILED, Standing.RETRYING, Standing.INTERRUPTED)


class Span(NamedTuple):
    """A piece of a line and what it is: a state, or `heading`, `name`, `dim`, `taken`, or nothing."""

    text: str
    role: str = ""


Row = Sequence[Span]


class Signs(NamedTuple):
    """What lines are drawn with: a fork and the last of it, each not taken and taken, a jump, a loop."""

    fork: str
    fork_taken: str
    last: str
    last_taken: str
    jump: str
    up: str
    times: str


FINE = Signs("├─▷", "┣━▶", "└─▷", "┗━▶", "┅▶", "↑", "×")
PLAIN = Signs("|->", "|=>", "`->", "`=>", "~>", "^", "x")


def to_rows(scene: Scene, *, width: int | None = None, is_ascii: bool = False) -> list[Row]:
    """The scene in rows no wider than `width` columns; None cuts nothing off."""
    signs = PLAIN if is_ascii else FINE
    rows: list[Row] = [[Span(scene.title, "heading")], []]
    order = scene.reading_order
    place = {number: at for at, number in enumerate(order)}
    columns = _columns([scene.items[number] for number in order])
    for at, number in enumerate(order):
        item, below = scene.items[number], order[at + 1] if at + 1 < len(order) else None
        rows.append(_node(item, columns, is_ascii))
        rows += _note(item)
        lines = scene.leaving[number]
        if _falls_through(lines, below):
            continue
        targets = [scene.items[line.head].id for line in lines]
        room = max((cells(target) for target in targets), default=0)
        for count, line in enumerate(lines, start=1):
            is_up = place[line.head] <= at
            rows.append(_arm(line, scene.items[line.head].id, room, is_up, count == len(lines), signs))
        if not lines and item.kind != "exit":
            rows.append([Span(f"{signs.last[0]} ends here", "dim")])
        if below is not None:
            rows.append([])
    rows += _legend(scene, signs, is_ascii)
    return [_fitted(_ascii(row) if is_ascii else row, width) for row in rows]


def _falls_through(lines: Sequence[Line], below: int | None) -> bool:
    """Whether the only way on is the next line, so that nothing need be said."""
    if len(lines) != 1:
        return False
    (line,) = lines
    return line.head == below and not (line.label or line.condition or line.is_jump)


def _columns(items: Sequence[Item]) -> tuple[int, int, int]:
    """How wide the columns of names, of states and of kinds are."""

    def widest(texts: Iterable[str]) -> int:
        return max((cells(text) for text in texts), default=0)

    return (
        min(widest(item.id for item in items), NAME_ROOM),
        widest(item.state.words for item in items if item.state),
        widest(one_line(item.kind_words) for item in items),
    )


def _node(item: Item, columns: tuple[int, int, int], is_ascii: bool) -> Row:
    name, state, kind = columns
    row: list[Span] = []
    if item.state:
        mark = MARKS[item.state.standing]
        row.append(Span(f"{mark.plain if is_ascii else mark.sign} ", item.state.standing.value))
    row.append(Span(_padded(cut(item.id, NAME_ROOM), name) + "  ", "name"))
    if item.state:
        row.append(Span(_padded(item.state.words, state) + "  ", item.state.standing.value))
    row.append(Span(_padded(one_line(item.kind_words), kind), "dim"))
    if item.label != item.id:
        row.append(Span(f"  {one_line(item.label)}"))
    return row


def _note(item: Item) -> Iterator[Row]:
    """Why a node stands as it does, where that is a trouble."""
    if item.state and item.state.note and item.state.standing in EXPLAINED:
        yield [Span(f"    {cut(one_line(item.state.note), NOTE_ROOM)}", item.state.standing.value)]


def _arm(line: Line, target: str, room: int, is_up: bool, is_last: bool, signs: Signs) -> Row:
    was_taken = bool(line.taken)
    if is_last:
        arrow = signs.last_taken if was_taken else signs.last
    else:
        arrow = signs.fork_taken if was_taken else signs.fork
    if line.is_jump:
        arrow = arrow[0] + signs.jump
    role = "taken" if was_taken else "" if line.taken is None else "dim"
    words = [line.label, f"if {line.condition}" if line.condition else ""]
    if line.taken is not None and line.taken > 1:
        words.append(f"{signs.times}{line.taken}")
    said = "  ".join(word for word in words if word)
    name = _padded(target, room) if said else target
    return [Span(f"{arrow} {name}{f' {signs.up}' if is_up else '  '}", role), Span(f"  {said}", role)]


def _legend(scene: Scene, signs: Signs, is_ascii: bool) -> Iterator[Row]:
    if not scene.items:
        return
    found = {item.state.standing for item in scene.items if item.state}
    row: list[Span] = []
    for standing in Standing:
        if standing in found:
            mark = MARKS[standing].plain if is_ascii else MARKS[standing].sign
            row += [Span(f"{mark} {standing.value}", standing.value), Span("   ")]
    yield []
    if row:
        yield row
    ways = (
        [f"{signs.last} way on", f"{signs.last_taken} taken"] if scene.has_run else [f"{signs.last} way on"]
    )
    yield [Span("   ".join((*ways, f"{signs.up} loops back", "no arrow: on to the line below")), "dim")]


def _ascii(row: Row) -> Row:
    """Without characters that the terminal may not have; what a person wrote is shown as an escape."""
    return [Span(span.text.encode("ascii", "backslashreplace").decode(), span.role) for span in row]


def _fitted(row: Row, width: int | None) -> Row:
    """The row without blanks at its end, cut where the terminal ends."""
    kept, used = list[Span](), 0
    for span in row:
        text = span.text if width is None else cut(span.text, max(width - used, 0))
        kept.append(Span(text, span.role))
        used += cells(text)
        if text != span.text:
            break
    while kept and not kept[-1].text.rstrip():
        kept.pop()
    if kept:
        kept[-1] = Span(kept[-1].text.rstrip(), kept[-1].role)
    return kept


def _padded(text: str, room: int) -> str:
    return text + " " * (room - cells(text))
