"""One answer, read chunk by chunk. Pure: it knows nothing of connections."""

from __future__ import annotations

from collections.abc import Iterator

from onward.agents.google.chunk import FINISHES, Candidate, Chunk, Counted, FunctionCall, Part, decode_chunks
from onward.agents.model.stream import FinishReason, Streamed
from onward.agents.wire.gathered import Gathered
from onward.agents.wire.signature import seal
from onward.agents.wire.trouble import ErrorInAnswer

UNKNOWN = "FINISH_REASON_UNSPECIFIED"


class GoogleAnswer(Gathered):
    """What has come of an answer, and whether it is whole. Nothing marks the end of this format's stream."""

    def __init__(self, maker: str) -> None:
        super().__init__()
        self._maker = maker
        self._counted: Counted | None = None

    def read(self, event: bytes) -> Iterator[Streamed]:
        """As the format's port says."""
        found = decode_chunks(event)
        for chunk in found if isinstance(found, list) else [found]:
            yield from self._chunk(chunk)

    def _chunk(self, chunk: Chunk) -> Iterator[Streamed]:
        if chunk.error is not None:
            raise ErrorInAnswer(chunk.error)
        self.model = chunk.model_version or self.model
        self.request_id = chunk.response_id or self.request_id
        self._counted = chunk.usage_metadata or self._counted
        if chunk.prompt_feedback is not None and chunk.prompt_feedback.block_reason:
            self.is_refused = self.is_whole = True
        for candidate in chunk.candidates or ():
            if not candidate.index:  # others are answers that nobody asked for
                yield from self._candidate(candidate)
        if self.is_whole and self._counted is not None:  # until then it is the count of a part
            self.usage = self._counted.usage()

    def _candidate(self, candidate: Candidate) -> Iterator[Streamed]:
        parts = candidate.content.parts if candidate.content is not None else None
        for part in parts or ():
            yield from self._part(part)
        if candidate.finish_reason and candidate.finish_reason != UNKNOWN:
            self.finish = FINISHES.get(candidate.finish_reason, FinishReason.OTHER)
            self.is_whole = True

    def _part(self, part: Part) -> Iterator[Streamed]:
        signature = seal(self._maker, part.thought_signature or "")
        if part.function_call is not None:
            yield self._call(part.function_call, signature)
        elif part.thought:
            if part.text or signature:
                yield self.add_reasoning(part.text or "", signature)
        else:
            if part.text:
                yield self.add_text(part.text)
            if signature:
                yield self.add_reasoning("", signature)

    def _call(self, function: FunctionCall, signature: str) -> Streamed:
        call = self.begin_call()
        call.signature = signature
        arguments = bytes(function.args).decode()
        return self.add_to_call(
            call,
            id=function.id or "",
            name=function.name or "",
            arguments="" if arguments == "null" else arguments,
        )
