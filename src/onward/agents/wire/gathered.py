"""What has come of an answer, in whatever format. Pure: it knows nothing of connections."""

from __future__ import annotations

from onward.agents.model.request import ToolCall
from onward.agents.model.stream import FinishReason, ReasoningDelta, TextDelta, ToolCallDelta, Usage


class ComingCall:
    """A tool call that is still coming."""

    def __init__(self, index: int) -> None:
        self.index, self.id, self.name, self.signature = index, "", "", ""
        self.arguments: list[str] = []

    def whole(self) -> ToolCall:
        """The call as far as it has come."""
        arguments = "".join(self.arguments).strip() or "{}"
        return ToolCall(self.id or f"call_{self.index}", self.name, arguments, self.signature)


class Gathered:
    """The parts that every format's reader adds to, and whether they are a whole answer."""

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.model = self.request_id = ""
        self.pieces = self.characters = 0
        """Of everything that the model wrote, reasoning included."""
        self.is_empty = True
        """No text and no tool call has come; reasoning alone is no answer."""
        self.is_whole = self.is_done = False
        """Done: the server has said that nothing more comes."""
        self.finish: FinishReason | None = None
        self.is_refused = False
        self.calls: list[ComingCall] = []

    @property
    def finish_reason(self) -> FinishReason:
        """Why it ended."""
        if self.is_refused:
            return FinishReason.REFUSAL
        if self.calls and self.finish in (None, FinishReason.STOP, FinishReason.OTHER):
            return FinishReason.TOOL_CALLS  # some servers say `stop` after tool calls
        return self.finish or FinishReason.STOP

    def tool_calls(self) -> list[ToolCall]:
        """The tool calls, as far as they have come."""
        return [call.whole() for call in self.calls]

    def add_text(self, text: str) -> TextDelta:
        """More text of the answer."""
        self.is_empty = False
        self._count(text)
        return TextDelta(text)

    def add_reasoning(self, text: str, signature: str = "") -> ReasoningDelta:
        """More reasoning; a signature ends a part of it."""
        if text:
            self._count(text)
        return ReasoningDelta(text, signature)

    def begin_call(self) -> ComingCall:
        """A call of which nothing has come yet."""
        self.calls.append(ComingCall(len(self.calls)))
        return self.calls[-1]

    def add_to_call(
        self, call: ComingCall, *, id: str = "", name: str = "", arguments: str = ""
    ) -> ToolCallDelta:
        """More of a call; the first id counts."""
        self.is_empty = False
        call.id = call.id or id
        call.name += name
        call.arguments.append(arguments)
        self._count(name + arguments)
        return ToolCallDelta(index=call.index, id=id, name=name, arguments=arguments)

    def _count(self, text: str) -> None:
        self.pieces += 1
        self.characters += len(text)
