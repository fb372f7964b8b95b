"""The client: sends one request, and streams the answer in our words. It never retries."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from urllib.parse import quote

from onward.agents.keys import KeyMissing, Keys, is_reference
from onward.agents.model.failure import FailureKind, ModelFailed
from onward.agents.model.request import ModelRequest
from onward.agents.model.stream import Streamed
from onward.agents.providers import Provider, split_name
from onward.agents.wire.format import WireFormat
from onward.agents.wire.http import Http, Outgoing
from onward.agents.wire.reading import Reading
from onward.agents.wire.refusal import Asked, Response, failed
from onward.agents.wire.trouble import Trouble
from onward.clock import Clock


class WireModel:
    """The models of one provider, in the format that it speaks."""

    def __init__(self, provider: Provider, wire: WireFormat, *, http: Http, keys: Keys, clock: Clock) -> None:
        self._provider, self._wire = provider, wire
        self._http, self._keys, self._clock = http, keys, clock

    async def stream(
        self, request: ModelRequest, *, idempotency_key: str | None = None
    ) -> AsyncGenerator[Streamed, None]:
        """As the port says."""
        asked = Asked(*split_name(request.model))
        secrets, outgoing = await self._outgoing(request, asked, idempotency_key)
        reading = Reading(request, asked, self._wire.answer(asked.model), secrets)
        try:
            async with self._http.post(outgoing) as incoming:
                reading.begin(Response(status=incoming.status, headers=incoming.headers))
                if not reading.is_answer:
                    raise ModelFailed(reading.refused(await incoming.beginning(), self._clock.now_us()))
                while not reading.is_done and (received := await incoming.read()):
                    for piece in reading.feed(received):
                        yield piece
                for piece in reading.end():
                    yield piece
        except Trouble as trouble:
            raise ModelFailed(reading.broken(trouble)) from None

    async def close(self) -> None:
        """As the port says."""
        await self._http.close()

    async def _outgoing(
        self, request: ModelRequest, asked: Asked, idempotency_key: str | None
    ) -> tuple[Sequence[str], Outgoing]:
        """The request with its key, and all secrets in it."""
        provider = self._provider
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if idempotency_key is not None:
            headers["Idempotency-Key"] = quote(idempotency_key, safe="/#:")
        try:
            key = await self._keys.find(provider.key, is_needed=provider.needs_key)
            headers |= self._wire.headers(key)
            given = {name.lower() for name in provider.headers}
            headers = {name: value for name, value in headers.items() if name.lower() not in given}
            for name, value in provider.headers.items():
                headers[name] = await self._keys.value(value)
        except KeyMissing as missing:
            what = f"cannot be asked: {missing}"
            raise ModelFailed(failed(asked, FailureKind.AUTH, what)) from None
        outgoing = Outgoing(
            url=self._wire.address(asked.model),
            headers=headers,
            body=self._body(request, asked),
            limits=provider.limits,
        )
        secret = [headers[name] for name, text in provider.headers.items() if is_reference(text)]
        return [key, *secret], outgoing

    def _body(self, request: ModelRequest, asked: Asked) -> bytes:
        try:
            return self._wire.body(request, asked.model)
        except UnicodeEncodeError:
            what = "cannot be asked: the request holds half a character (a lone surrogate)"
            raise ModelFailed(failed(asked, FailureKind.REQUEST, what)) from None
