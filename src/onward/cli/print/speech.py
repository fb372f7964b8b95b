"""What agents say while this process executes their steps: the words as they come, then whole messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from onward.cli.output import clean, one_line
from onward.model.call import CallFinished, CallKind, CallStarted, CallStatus
from onward.model.chat import ChunkKind
from onward.model.events import AttemptFailed, AttemptInterrupted, Event
from onward.model.ids import node_of, place_of

ABOUT_MAX = 80
BROKEN_OFF = " [broken off]"
WHO = {"user": "you", "system": "onward"}
"""Who writes the messages of a role. Those of agents are known by their steps."""


class Said(msgspec.Struct):
    """A message that is being written."""

    run: str
    step: str
    call: str
    is_program: bool
    text: str = ""

    @property
    def speaker(self) -> str:
        """The node of the agent."""
        return one_line(node_of(place_of(self.step)))


class Use(NamedTuple):
    """A tool that a program used, with what for."""

    step: str
    name: str
    about: str


class Speech:
    """The messages that agents of this process write. Their text is stored before it is heard here."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        """The messages that were heard here."""
        self._open: dict[str, Said] = {}

    def hear(self, message: str, chunks: Sequence[tuple[ChunkKind, str]]) -> Sequence[Use]:
        """Add to a message; returns the tools that a program has used meanwhile."""
        said = self._open.get(message)
        if said is None:
            return ()
        uses: list[Use] = []
        for kind, text in chunks:
            if kind is ChunkKind.TEXT:
                said.text += text
            elif kind is ChunkKind.TOOL_CALL and said.is_program:  # a model's are calls of their own
                name, _, about = text.partition(" ")
                uses.append(Use(said.step, name, one_line(about, ABOUT_MAX)))
        return uses

    def note(self, run_id: str, event: Event) -> Iterator[str]:
        """The lines of the messages that an event ends."""
        match event:
            case CallStarted(streamed=streamed) if streamed is not None:
                is_program = event.type == CallKind.PROGRAM
                self._open[streamed.message] = Said(run_id, event.step, event.call, is_program)
                self.known.add(streamed.message)
            case CallFinished():
                is_whole = event.status is CallStatus.OK
                yield from self._ended(run_id, event.step, event.call, is_whole=is_whole)
            case AttemptFailed() | AttemptInterrupted():
                yield from self._ended(run_id, event.step, None, is_whole=False)

    def _ended(self, run_id: str, step: str, call: str | None, *, is_whole: bool) -> Iterator[str]:
        for message, said in list(self._open.items()):
            if said.run == run_id and said.step == step and call in (None, said.call):
                del self._open[message]
                yield from spoken_lines(said.speaker, said.text, "" if is_whole else BROKEN_OFF)

    def open(self) -> Iterator[Said]:
        """The messages that are being written and have some text, the oldest first."""
        return (said for said in self._open.values() if said.text.strip())


def spoken_lines(speaker: str, text: str, mark: str = "") -> list[str]:
    """A whole message as lines; none without text."""
    first, *rest = clean(text).strip().splitlines() or [""]
    return [f"{speaker}{mark}> {first}", *(f"  {line}".rstrip() for line in rest)] if first else []
