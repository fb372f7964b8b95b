"""One response, from its head to its end: bytes in, pieces of the answer out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from onward.agents.model.failure import Failure, FailureKind, ModelFailed
from onward.agents.model.request import ModelRequest
from onward.agents.model.stream import Finished, FinishReason, Streamed, Usage
from onward.agents.tokens import estimated_usage
from onward.agents.wire.format import AnswerReader
from onward.agents.wire.refusal import Asked, Response, error_in_stream, failed, hide, plain, refusal
from onward.agents.wire.sse import SseReader, TooLarge
from onward.agents.wire.trouble import ErrorInAnswer, Trouble

STREAM, WHOLE, PAGE = "text/event-stream", "application/json", "text/html"
MAY_HAVE_COST = (FailureKind.CUT, FailureKind.TRANSIENT, FailureKind.EMPTY)


class Reading:
    """Reads the response to one request; raises ModelFailed or Trouble where it is no whole answer."""

    def __init__(
        self, request: ModelRequest, asked: Asked, answer: AnswerReader, secrets: Sequence[str] = ()
    ) -> None:
        self._request, self._asked, self._secrets = request, asked, secrets
        self._answer, self._events = answer, SseReader()
        self._head: Response | None = None
        self._whole: bytearray | None = None

    def begin(self, head: Response) -> None:
        """The head of the response has come."""
        shown = {name: hide(value, self._secrets) for name, value in head.headers.items()}
        self._head = head = Response(status=head.status, headers=shown)
        if head.status == 200 and head.content_type == PAGE:
            raise Trouble(FailureKind.REQUEST, "answered with an HTML page", is_sent=False)
        if head.content_type == WHOLE:
            self._whole = bytearray()  # of a server that does not stream

    @property
    def is_done(self) -> bool:
        """Whether the server has said that nothing more comes."""
        return self._answer.is_done

    @property
    def is_answer(self) -> bool:
        """Whether the head promises an answer."""
        return self._head is not None and self._head.status == 200

    def feed(self, received: bytes) -> Iterator[Streamed]:
        """The pieces in the next bytes of the body."""
        if self._whole is not None:
            self._whole += received
            return
        try:
            events = self._events.feed(received)
        except TooLarge:
            raise Trouble(FailureKind.CUT, "sent a piece without end", is_sent=True) from None
        yield from self._pieces(events)

    def end(self) -> Iterator[Streamed]:
        """The last pieces, now that the body has ended."""
        rest = self._events.finish() if self._whole is None else [bytes(self._whole)]
        yield from self._pieces(rest)
        answer = self._answer
        if not answer.is_whole:
            raise Trouble(FailureKind.CUT, "broke off its answer (it has no end)", is_sent=True)
        if answer.is_empty and answer.finish_reason not in (FinishReason.LENGTH, FinishReason.REFUSAL):
            raise Trouble(FailureKind.EMPTY, "answered nothing", is_sent=True)
        yield from answer.tool_calls()
        model = hide(plain(answer.model), self._secrets) or self._asked.model
        yield Finished(
            usage=self._usage(),
            finish_reason=answer.finish_reason,
            model=model,
            request_id=self._response.request_id or self._answer_id(),
        )

    def refused(self, body: bytes, now_us: int) -> Failure:
        """What an error response means."""
        response = msgspec.structs.replace(self._response, body=body)
        return refusal(self._asked, response, now_us=now_us, secrets=self._secrets)

    def broken(self, trouble: Trouble) -> Failure:
        """What a broken exchange comes to."""
        return failed(
            self._asked,
            trouble.kind,
            trouble.what,
            status=self._head.status if self._head else None,
            request_id=(self._head.request_id if self._head else "") or self._answer_id(),
            usage=self._answer.usage,
            may_have_cost=trouble.is_sent and trouble.kind in MAY_HAVE_COST,
        )

    def _pieces(self, events: Sequence[bytes]) -> Iterator[Streamed]:
        for event in events:
            try:
                yield from self._answer.read(event)
            except (msgspec.DecodeError, RecursionError):
                raise Trouble(FailureKind.CUT, "sent something that is no answer", is_sent=True) from None
            except ErrorInAnswer as sent:
                told = error_in_stream(self._asked, sent.error, self._response, secrets=self._secrets)
                raise ModelFailed(msgspec.structs.replace(told, usage=self._answer.usage)) from None
            if self.is_done:
                return

    @property
    def _response(self) -> Response:
        assert self._head is not None, "the head comes first"
        return self._head

    def _answer_id(self) -> str:
        """The provider's name for the answer, of a format that puts it there instead of into a header."""
        return hide(plain(self._answer.request_id, most=200), self._secrets)

    def _usage(self) -> Usage:
        answer = self._answer
        return answer.usage or estimated_usage(
            self._request, pieces=answer.pieces, characters=answer.characters
        )
