"""Structured programs, and what they are in DOT.

A program is a block of statements that nest; it is small enough to be understood by reading it, and it can be
written down as a pipeline. `predicted.py` says what must come of it, from the program itself and not from the
graph. The node of a statement has the statement's name, and every block is entered at its first statement.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hypothesis import strategies as st

COUNTERS = ("a", "b")
MAX_REROUTES = 2


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Something to do, with blocks inside. Names come last: `numbered` gives them."""

    name: str = ""
    blocks: tuple[Block, ...] = ()


Block = tuple[Statement, ...]


@dataclass(frozen=True, kw_only=True)
class Work(Statement):
    """Counts. It stumbles (RETRY) a few times first, or it breaks (FAIL) every time.

    With a block, a failure goes there and then on; `is_judged` has it go through a conditional node first.
    Without one, a failure is the end of its line.
    """

    counter: str
    add: int = 1
    stumbles: int = 0
    max_retries: int = 0
    breaks: bool = False
    allow_partial: bool = False
    is_judged: bool = False


@dataclass(frozen=True, kw_only=True)
class Goal(Statement):
    """A goal gate that is unmet on its very first visit. Its failure goes on, to be found at the exit."""


@dataclass(frozen=True, kw_only=True)
class Choice(Statement):
    """Two blocks: for an odd counter and for an even one. It may count itself before it looks.

    For an even counter there may instead be no edge that can be taken (`closed`), or a `dead_end`.
    """

    counter: str
    is_counting: bool = False
    even: str = "open"


@dataclass(frozen=True, kw_only=True)
class Loop(Statement):
    """Its block, `times - 1` times: the node that counts stands before the block and behind it."""

    times: int


@dataclass(frozen=True, kw_only=True)
class Gate(Statement):
    """Two blocks: for yes and for no."""


@dataclass(frozen=True, kw_only=True)
class Parallel(Statement):
    """A branch for each block; an empty one leads straight to the fan-in. All of them are waited for.

    If every branch fails so does the fan-in, and that goes on only if it `is_rescued`.
    """

    max_parallel: int
    is_rescued: bool = True


def answer_of(gate_id: str) -> str:
    """What a gate is answered: a rule of its id, so that nothing else can have an influence."""
    return "YN"[sum(map(ord, gate_id)) % 2]


def join_of(parallel: Parallel) -> str:
    return f"{parallel.name}_join"


def judge_of(work: Work) -> str:
    return f"{work.name}_judge"


def end_of(choice: Choice) -> str:
    """The node without edges that an even counter leads to."""
    return f"{choice.name}_end"


def all_statements(block: Block) -> Iterator[Statement]:
    for statement in block:
        yield statement
        for inner in statement.blocks:
            yield from all_statements(inner)


# -- in DOT ------------------------------------------------------------------------------------------


def dot(program: Block) -> str:
    """The program as a pipeline whose effects are all of the type `count`."""
    writer = _Writer()
    first = writer.block(program, "exit")
    lines = "\n".join(f"  {line}" for line in writer.lines)
    return f"""digraph program {{
  graph [max_reroutes={MAX_REROUTES}]
  start [shape=Mdiamond]; exit [shape=Msquare]
  start -> {first}
{lines}
}}"""


class _Writer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._outermost = ""

    def block(self, block: Block, onward: str) -> str:
        """Write a block that leads to `onward`; returns where it begins."""
        is_outermost = not self._outermost
        for statement in reversed(block):
            if is_outermost:
                self._outermost = statement.name
            self._statement(statement, onward)
            onward = statement.name
        return onward

    def _statement(self, statement: Statement, onward: str) -> None:
        match statement:
            case Work():
                self._work(statement, onward)
            case Goal(name=name):
                gate = f"goal_gate=true, retry_target={self._outermost}"
                self._node(name, f"type=count, counter={name}, unmet_once=true, {gate}")
                self._edge(name, onward, 'condition="outcome=fail"')
                self._edge(name, onward)
            case Choice(name=name, counter=counter, is_counting=is_counting, blocks=(odd, even)):
                self._node(name, f"type=count, counter={counter}" if is_counting else "shape=diamond")
                self._edge(name, self.block(odd, onward), f'condition="context.parity_{counter}=odd"')
                self._even(statement, even, onward)
            case Loop(name=name, times=times, blocks=(body,)):
                self._node(name, f"type=count, counter={name}, every={times}")
                self._edge(name, self.block(body, name), f'condition="context.again_{name}=yes"')
                self._edge(name, onward)
            case Gate(name=name, blocks=(yes, no)):
                self._node(name, 'shape=hexagon, label="Yes or no?"')
                self._edge(name, self.block(yes, onward), 'label="[Y] yes"')
                self._edge(name, self.block(no, onward), 'label="[N] no"')
            case Parallel():
                self._parallel(statement, onward)

    def _even(self, choice: Choice, block: Block, onward: str) -> None:
        if choice.even == "dead_end":
            self._node(end_of(choice), f"type=count, counter={choice.counter}")
            self._edge(choice.name, end_of(choice))
        else:
            closed = 'condition="context.never=yes"' if choice.even == "closed" else ""
            self._edge(choice.name, self.block(block, onward), closed)

    def _work(self, work: Work, onward: str) -> None:
        attrs = f"type=count, counter={work.counter}, add={work.add}, stumbles={work.stumbles}"
        flags = f"breaks={str(work.breaks).lower()}, allow_partial={str(work.allow_partial).lower()}"
        self._node(work.name, f"{attrs}, {flags}, max_retries={work.max_retries}")
        looks = work.name
        if work.is_judged:
            looks = judge_of(work)
            self._node(looks, "shape=diamond")
            self._edge(work.name, looks)
        for rescue in work.blocks:
            self._edge(looks, self.block(rescue, onward), 'condition="outcome=fail"')
        self._edge(looks, onward)

    def _parallel(self, parallel: Parallel, onward: str) -> None:
        join = join_of(parallel)
        self._node(parallel.name, f"shape=component, max_parallel={parallel.max_parallel}")
        self._node(join, "shape=tripleoctagon")
        for branch in parallel.blocks:
            self._edge(parallel.name, self.block(branch, join))
        if parallel.is_rescued:
            self._edge(join, onward, 'condition="outcome=fail"')
        self._edge(join, onward)

    def _node(self, name: str, attrs: str) -> None:
        self.lines.append(f"{name} [{attrs}]")

    def _edge(self, source: str, target: str, attrs: str = "") -> None:
        self.lines.append(f"{source} -> {target}" + (f" [{attrs}]" if attrs else ""))


# -- at random ---------------------------------------------------------------------------------------


def programs(*, depth: int = 3, length: int = 3) -> st.SearchStrategy[Block]:
    """Programs of at most so many statements per block, nested at most so deep."""
    return _blocks(depth, length, 1).map(numbered)


def numbered(program: Block) -> Block:
    """The same program with a name for every statement."""
    names = (f"n{number}" for number in range(1, 10_000))
    return _numbered(program, names)


def _numbered(block: Block, names: Iterator[str]) -> Block:
    return tuple(
        replace(
            statement,
            name=f"{type(statement).__name__.lower()}_{next(names)}",
            blocks=tuple(_numbered(inner, names) for inner in statement.blocks),
        )
        for statement in block
    )


def _blocks(depth: int, length: int, at_least: int = 0) -> st.SearchStrategy[Block]:
    return st.lists(_statements(depth, length), min_size=at_least, max_size=length).map(tuple)


def _statements(depth: int, length: int) -> st.SearchStrategy[Statement]:
    counters = st.sampled_from(COUNTERS)
    simple = _works(counters)
    if depth == 0:
        return simple
    inner = st.deferred(lambda: _blocks(depth - 1, max(1, length - 1)))
    two = st.tuples(inner, inner)
    branches = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        simple,
        _works(counters, st.tuples(inner)),
        st.builds(
            Choice,
            counter=counters,
            is_counting=st.booleans(),
            even=st.sampled_from(["open", "open", "open", "open", "closed", "dead_end"]),
            blocks=two,
        ),
        st.builds(Loop, times=st.integers(2, 3), blocks=st.tuples(inner)),
        st.builds(Gate, blocks=two),
        st.builds(Goal),
        st.builds(
            Parallel,
            max_parallel=st.integers(1, 3),
            is_rescued=st.sampled_from([True, True, False]),
            blocks=branches,
        ),
        st.builds(
            Parallel,
            max_parallel=st.integers(1, 3),
            blocks=branches,
        ),
    )


def _works(
    counters: st.SearchStrategy[str], rescue: st.SearchStrategy[tuple[Block, ...]] | None = None
) -> st.SearchStrategy[Work]:
    """Without a rescue a failure is rare: behind it nothing happens any more."""
    if rescue is None:
        return st.builds(
            Work,
            counter=counters,
            add=st.integers(1, 2),
            stumbles=st.integers(0, 2),
            max_retries=st.just(2),
            breaks=st.integers(0, 5).map(lambda chance: chance == 5),
        )
    return st.builds(
        Work,
        counter=counters,
        stumbles=st.integers(0, 2),
        max_retries=st.integers(0, 1),
        breaks=st.booleans(),
        allow_partial=st.booleans(),
        is_judged=st.booleans(),
        blocks=rescue,
    )
