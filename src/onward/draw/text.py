"""A picture for a terminal: a list that reads like a program.

Each node has a line, below the nodes that lead to it. A node without arrows leads to the next line; all
others name where they lead, and `↑` marks a loop. A heavy arrow was taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from onward.draw.geometry import cells, cut, one_line
from onward.draw.scene import Item, NodeStatus, Scene, SceneLine
from onward.draw.svg import MARKS

NAME_ROOM, NOTE_ROOM = 32, 200
EXPLAINED = (NodeStatus.FAILED, NodeStatus.RETRYING, NodeStatus.INTERRUPTED)


class Span(NamedTuple):
    """A piece of a line and its role: a state, `heading`, `name`, `dim`, `taken`, or nothing."""

    text: str
    role: str = ""


Row = Sequence[Span]


class Signs(NamedTuple):
    """What lines are drawn with: an arrow and the last of several, each also as taken, a jump, a loop."""

    fork: str
    fork_taken: str
    last: str
    last_taken: str
    jump: str
    up: str
    times: str


UNICODE = Signs("├─▷", "┣━▶", "└─▷", "┗━▶", "┅▶", "↑", "×")
PLAIN = Signs("|->", "|=>", "`->", "`=>", "~>", "^", "x")


def to_rows(scene: Scene, *, width: int | None = None, is_ascii: bool = False) -> list[Row]:
    """The scene in rows no wider than `width` columns; None cuts nothing off."""
    signs = PLAIN if is_ascii else UNICODE
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


def _falls_through(lines: Sequence[SceneLine], below: int | None) -> bool:
    """Whether the only edge leads to the next line, so that no arrow is needed."""
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
        mark = MARKS[item.state.status]
        row.append(Span(f"{mark.plain if is_ascii else mark.sign} ", item.state.status.value))
    row.append(Span(_padded(cut(item.id, NAME_ROOM), name) + "  ", "name"))
    if item.state:
        row.append(Span(_padded(item.state.words, state) + "  ", item.state.status.value))
    row.append(Span(_padded(one_line(item.kind_words), kind), "dim"))
    if item.label != item.id:
        row.append(Span(f"  {one_line(item.label)}"))
    return row


def _note(item: Item) -> Iterator[Row]:
    """Why a node is in its state, if that is a problem."""
    if item.state and item.state.note and item.state.status in EXPLAINED:
        yield [Span(f"    {cut(one_line(item.state.note), NOTE_ROOM)}", item.state.status.value)]


def _arm(line: SceneLine, target: str, room: int, is_up: bool, is_last: bool, signs: Signs) -> Row:
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
    found = {item.state.status for item in scene.items if item.state}
    row: list[Span] = []
    for status in NodeStatus:
        if status in found:
            mark = MARKS[status].plain if is_ascii else MARKS[status].sign
            row += [Span(f"{mark} {status.value}", status.value), Span("   ")]
    yield []
    if row:
        yield row
    arrows = [f"{signs.last} edge", *([f"{signs.last_taken} edge taken"] if scene.has_run else [])]
    yield [Span("   ".join((*arrows, f"{signs.up} loops back", "no arrow: leads to the next line")), "dim")]


def _ascii(row: Row) -> Row:
    """The row with escapes for characters that the terminal may not have."""
    return [Span(span.text.encode("ascii", "backslashreplace").decode(), span.role) for span in row]


def _fitted(row: Row, width: int | None) -> Row:
    """The row without trailing blanks, cut to the terminal's width."""
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
