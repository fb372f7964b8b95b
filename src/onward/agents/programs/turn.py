"""One turn of a program: from what it is asked to the answer as it is recorded.

`TurnOutput` is what the turn has said so far: shown as it comes, and kept for the answer. `Lines` splits
bytes that come in pieces into lines, each bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import msgspec

from onward.agents.model import AssistantMessage, FailureKind, ProgramSession, Text, TokenUsage
from onward.agents.prices import Prices, cost_micro
from onward.agents.programs import output as pieces
from onward.agents.programs.program import (
    TEXT,
    Program,
    TurnRequest,
    failed,
    input_of,
    is_session,
    missing,
    not_started,
    reader_of,
    words_of,
)
from onward.agents.step.conversation import Thread, usage_of
from onward.clock import Clock, Deadline
from onward.errors import CannotExecute, InvalidInput, SpawnFailed
from onward.handlers.calls import CallAnswer, TextSink
from onward.handlers.port import StepContext
from onward.model.chat import ChunkKind
from onward.model.context import check_value
from onward.model.result import excerpt
from onward.process import CommandExit, Hear
from onward.redact.redactor import RedactingStream

STDERR_CHARACTERS = 2_000
TURN_TOKENS_MAX = 10_000_000_000
"""More than any turn uses; a turn may be thousands of requests, each with the whole conversation."""
UNUSABLE_CHARACTERS = 500
UNREADABLE = "the program reported an impossible number of tokens"


class RunsPrograms(Protocol):
    """Runs programs without a shell."""

    async def run_program(
        self,
        words: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: str | None,
        stdin: bytes,
        deadline: Deadline,
        hear: Hear,
    ) -> CommandExit:
        """Run one to its end; nothing that it started is left then, nor after a cancellation."""
        ...


class Turn(msgspec.Struct):
    """Asks a program once. `continued` is the conversation with the answer in it.

    `before` is the session that the turn continues, if it continues one.
    """

    step: StepContext
    program: Program
    asked: TurnRequest
    thread: Thread
    before: ProgramSession | None
    spawn: RunsPrograms
    environment: Mapping[str, str]
    cwd: str | None
    prices: Prices
    clock: Clock
    continued: Thread | None = None

    async def run(self, message: TextSink) -> CallAnswer:
        """The answer as it is recorded. ProgramFailed: there is none."""
        taking = TurnOutput(self.step, reader_of(self.program, self.clock), message)
        with taking.listening():
            finished = await self._finished(taking)
        await message.ready()
        return self._answer(taking, self._ended(taking, finished))

    async def _finished(self, taking: TurnOutput) -> CommandExit:
        try:
            return await self.spawn.run_program(
                words_of(self.program, self.asked),
                env=self.environment,
                cwd=self.cwd,
                stdin=input_of(self.program, self.asked),
                deadline=self.step.deadline,
                hear=taking.hear,
            )
        except CannotExecute as error:
            why = "was not found" if error.is_missing else "cannot be executed"
            raise not_started(self.program, missing(self.program, why), kind=FailureKind.REQUEST) from error
        except SpawnFailed as error:
            raise not_started(self.program, str(error), kind=FailureKind.TRANSIENT) from error

    def _ended(self, taking: TurnOutput, finished: CommandExit) -> pieces.TurnEnded:
        """What the turn ended with; an answer counts even if the program failed after it."""
        ended = taking.ended
        if ended is None and taking.trouble is None and self.program.format == TEXT:
            ended = pieces.TurnEnded(taking.text) if finished.exit_code == 0 else None
        if ended is not None and (ended.text.strip() or ended.facts):
            return ended
        trouble = taking.trouble or _trouble(finished, is_empty=ended is not None)
        raise failed(
            self.program,
            trouble,
            now_us=self.clock.now_us(),
            exit_code=finished.exit_code,
            has_worked=taking.has_worked,
            model=taking.model or self.asked.model,
        )

    def _answer(self, taking: TurnOutput, ended: pieces.TurnEnded) -> CallAnswer:
        usage, total = self._usage(taking.counted)
        is_odd = usage is not None and not usage.is_possible(TURN_TOKENS_MAX)
        session = self._session(taking, None if is_odd else total)
        thread = self.continued = Thread(self.thread.redactor, self.thread.head, self.thread.messages)
        text = storable(ended.text)
        thread.add(AssistantMessage((Text(text),), session))
        model = taking.model or self.asked.model
        value: dict[str, Any] = {"text": text, "thread": thread.head, "program": self.program.name}
        if session is not None:
            value["session"] = session.id
        if ended.facts:
            value |= kept_facts(ended.facts)
        return CallAnswer(
            value,
            usage=None if usage is None or is_odd else usage_of(usage),
            cost_micro=None if is_odd else self._cost(taking.counted, usage, model),
            model=f"{self.program.name}:{model}" if model else self.program.name,
            thread=thread.head,
            nodes=thread.take_fresh(),
            note=UNREADABLE if is_odd else "",
        )

    def _usage(self, counted: pieces.TokensCounted | None) -> tuple[TokenUsage | None, TokenUsage | None]:
        """The tokens of this turn, and those of the session so far if that is what the program counts."""
        if counted is None:
            return None, None
        if not counted.is_total:
            return counted.usage, None
        return (counted.usage if self.before is None else _since(counted.usage, self.before)), counted.usage

    def _session(self, taking: TurnOutput, total: TokenUsage | None) -> ProgramSession | None:
        """The session that a later turn continues: as the program names it now, else as it did before."""
        name = taking.session or (self.before.id if self.before is not None else "")
        if not name:
            return None
        total = total or TokenUsage()
        return ProgramSession(
            self.program.name, name, total.input, total.output, total.cached_input, total.reasoning
        )

    def _cost(self, counted: pieces.TokensCounted | None, usage: TokenUsage | None, model: str) -> int | None:
        """What the program says; else what the model's price makes of its tokens."""
        if counted is not None and counted.cost_micro is not None:
            return counted.cost_micro
        price = self.prices.find(f"{self.program.provider or self.program.name}:{model}") if model else None
        return None if usage is None or price is None else cost_micro(usage, price)


def kept_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What is recorded of the facts: a turn that has ended is recorded, also if they cannot be stored."""
    try:
        check_value(dict(facts), "it")
    except InvalidInput as error:
        return {"unusable": excerpt(str(error).rstrip("."), UNUSABLE_CHARACTERS)}
    return {"facts": dict(facts)}


def _since(total: TokenUsage, before: ProgramSession) -> TokenUsage:
    """What a turn adds to a session. A session that counts less than before began to count anew."""
    if total.input < before.input or total.output < before.output:
        return total
    return TokenUsage(
        input=total.input - before.input,
        output=total.output - before.output,
        cached_input=max(0, total.cached_input - before.cached),
        reasoning=max(0, total.reasoning - before.reasoning),
    )


def _trouble(finished: CommandExit, *, is_empty: bool) -> pieces.TurnFailed:
    """Why a program ended without an answer, as far as it can be seen from outside."""
    said = finished.stderr.strip()[-STDERR_CHARACTERS:]
    if is_empty:
        return pieces.TurnFailed("it gave no response", FailureKind.EMPTY.value)
    if finished.signal is not None:
        return pieces.TurnFailed(f"it was ended by signal {finished.signal}", FailureKind.CUT.value)
    how = f"it ended without a result, with exit code {finished.exit_code}"
    return pieces.TurnFailed(f"{how}: {said}" if said else how)


SHOWN_CHARACTERS_MAX = 4_000_000
"""How much of one turn is stored as a message; nobody reads more, and memory is not free."""
TOOL_CHARACTERS_MAX = 4_000
_UNSTORABLE = str.maketrans({"\0": "\N{REPLACEMENT CHARACTER}"})


class TurnOutput:
    """Takes the output of one turn. `has_worked`: the program has said or done something."""

    def __init__(self, step: StepContext, reader: pieces.Reader | None, message: TextSink) -> None:
        self._step, self._reader, self._message = step, reader, message
        self._lines, self._heard = Lines(), RedactingStream(step.redactor)
        self._shown, self._strange, self._text = 0, 0, pieces.SaidText("\n")
        self.session = self.model = ""
        self.counted: pieces.TokensCounted | None = None
        self.ended: pieces.TurnEnded | None = None
        self.trouble: pieces.TurnFailed | None = None
        self.has_worked = False

    def hear(self, stream: str, data: bytes) -> None:
        """Take what the program prints."""
        if stream == "stderr":
            self._step.output.hear(stream, data)
            return
        for line in self._lines.feed(data):
            self._line(line)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Until the program has ended; then the last line counts too, and what was strange is told."""
        try:
            yield
        finally:
            for line in self._lines.finish():
                self._line(line)
            self._tell(self._heard.finish())
            for note in self._text.notes():
                self._take(note)
            if self._strange or self._lines.dropped:
                self._step.log(
                    f"the program printed {self._strange:,} lines that are not events and "
                    f"{self._lines.dropped:,} that are too long; all of them were ignored"
                )

    @property
    def text(self) -> str:
        """All that a program said whose output is plain text."""
        return self._text.text.strip()

    def _line(self, line: bytes) -> None:
        if self._reader is None:
            text = line.decode("utf-8", "replace")
            self._text.add(storable(text))
            self._take(pieces.TextSaid(f"{text}\n"))
            return
        if not line.strip():
            return
        event = event_in(line)
        if event is None:
            self._strange += 1
            return
        for piece in self._reader.read(event):
            self._take(piece)

    def _take(self, piece: pieces.Piece) -> None:
        match piece:
            case pieces.SessionBegan(session, model):
                self.session = session if is_session(session) else self.session
                self.model = model or self.model
            case pieces.TextSaid(text):
                self._show(ChunkKind.TEXT, text)
            case pieces.ThoughtSaid(text):
                self._show(ChunkKind.REASONING, text)
            case pieces.ProgramToolUsed(tool, what):
                self._show(ChunkKind.TOOL_CALL, f"{tool} {what}".strip()[:TOOL_CHARACTERS_MAX])
            case pieces.ProgramToolAnswered(text, is_error):
                self._show(
                    ChunkKind.TOOL_RESULT, f"{'error: ' if is_error else ''}{text}"[:TOOL_CHARACTERS_MAX]
                )
            case pieces.TokensCounted():
                self.counted = piece
            case pieces.LineNoted(text):
                self._step.log(storable(text))
            case pieces.TurnEnded():
                self.ended, self.trouble = piece, None
            case pieces.TurnFailed():
                self.trouble = piece

    def _show(self, kind: ChunkKind, text: str) -> None:
        if not text:
            return
        self.has_worked = True
        text = storable(text)[: max(0, SHOWN_CHARACTERS_MAX - self._shown)]
        if not text:
            return
        self._shown += len(text)
        self._message.write(kind, text)
        if kind is ChunkKind.TEXT:
            self._tell(self._heard.feed(text))

    def _tell(self, text: str) -> None:
        if text:
            self._step.output.hear("stdout", text.encode())


def storable(text: str) -> str:
    """The text as every store can hold it."""
    return text.translate(_UNSTORABLE).encode("utf-8", "replace").decode()


LINE_BYTES_MAX = 8 << 20
_decode = msgspec.json.Decoder().decode


class Lines:
    """Splits bytes at newlines. A line that is too long is dropped whole, and counted."""

    def __init__(self, bytes_max: int = LINE_BYTES_MAX) -> None:
        self._bytes_max, self._rest = bytes_max, bytearray()
        self._is_dropping = False
        self.dropped = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The lines that end in this piece."""
        *ended, rest = data.split(b"\n")
        for part in ended:
            if (line := self._end(part)) is not None:
                yield line
        self._grow(rest)

    def finish(self) -> Iterator[bytes]:
        """The last line, if it has no newline at its end."""
        if (line := self._end(b"")) is not None and line:
            yield line

    def _grow(self, part: bytes) -> None:
        if self._is_dropping:
            return
        self._rest += part
        if len(self._rest) > self._bytes_max:
            self._is_dropping = True
            self._rest.clear()

    def _end(self, part: bytes) -> bytes | None:
        self._grow(part)
        line, is_dropped = bytes(self._rest), self._is_dropping
        self._rest.clear()
        self._is_dropping = False
        self.dropped += is_dropped
        return None if is_dropped else line


def event_in(line: bytes) -> Mapping[str, Any] | None:
    """The JSON object of a line; None if it is none."""
    try:
        found = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
