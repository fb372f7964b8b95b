"""Providers that speak none of our formats, through pydantic-ai. It asks once and never retries.

Only the `others*` files know the library. It is an extra, and its import takes seconds, so
`others_pydantic_ai` is imported with the first request and not in the event loop: this file must not import
it above its functions. `is_installed` says whether the library is there, without importing it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec

from onward.agents.model import Failure, FailureKind, ModelFailed, ModelRequest, Streamed
from onward.agents.providers import KeyMissing, Keys, Provider, is_reference, patience, split_name
from onward.agents.refusal import AskedModel, failed, hide
from onward.agents.wire import MAY_HAVE_COST, ExchangeFailed
from onward.clock import Clock, TookTooLong, within
from onward.errors import InvalidInput
from onward.threads import in_thread

if TYPE_CHECKING:
    from pydantic_ai.models import Model as TheirModel

    from onward.agents.others_pydantic_ai import TheirAnswer


INSTALL = "pip install 'onward[others]'"


def is_installed() -> bool:
    """Whether the library of the extra is there."""
    return find_spec("pydantic_ai") is not None


_EXTRA = re.compile(r"pydantic-ai-slim\[[a-z,-]+\]")
Options = dict[str, str | int | float | bool]
Build = Callable[[Provider, str, Options], "TheirModel"]
"""Makes the library's model for a provider, the name of a model and the options, with the key in them."""


def build_model(provider: Provider, model: str, options: Options) -> TheirModel:
    """The model of the provider that the settings name. The first one imports the library: for seconds."""
    from onward.agents import others_pydantic_ai

    return others_pydantic_ai.build(
        provider.provider or provider.name, model, options=options, limits=provider.limits
    )


class OthersModel:
    """The models of one provider."""

    def __init__(self, provider: Provider, *, keys: Keys, clock: Clock, build: Build = build_model) -> None:
        self._provider, self._keys, self._clock, self._build = provider, keys, clock, build
        self._open: dict[str, tuple[Options, TheirModel]] = {}
        self._opening = asyncio.Lock()

    async def stream(
        self, request: ModelRequest, *, idempotency_key: str | None = None
    ) -> AsyncGenerator[Streamed, None]:
        """As the port says."""
        asked = AskedModel(*split_name(request.model))
        options, secrets = await self._options(asked)
        async with self._model(asked, options, secrets) as model:
            from onward.agents.others_pydantic_ai import TheirAnswer, failure_of

            answer = TheirAnswer(request, secrets)
            try:
                async with aclosing(self._exchange(model, request, answer, idempotency_key)) as pieces:
                    async for piece in pieces:
                        yield piece
            except ExchangeFailed as trouble:
                may_have_cost = trouble.is_sent and trouble.kind in MAY_HAVE_COST
                told = failed(asked, trouble.kind, trouble.what, may_have_cost=may_have_cost)
                raise ModelFailed(msgspec.structs.replace(told, usage=answer.usage)) from None
            except Exception as error:  # of whatever client is behind the library
                now_us, has_begun = self._clock.now_us(), bool(answer.written)
                told = failure_of(error, asked, has_begun=has_begun, now_us=now_us, secrets=secrets)
                raise ModelFailed(told) from None

    async def close(self) -> None:
        """As the port says."""
        opened, self._open = self._open, {}
        for _, model in opened.values():
            await model.__aexit__(None, None, None)

    async def _exchange(
        self, model: TheirModel, request: ModelRequest, answer: TheirAnswer, idempotency_key: str | None
    ) -> AsyncGenerator[Streamed, None]:
        """Ask, and read the answer to its end; whoever stops early drops the connection."""
        from pydantic_ai.direct import model_request_stream

        from onward.agents.others_pydantic_ai import question

        clock, limits = self._clock, self._provider.limits
        put = question(request, model, limits=limits, idempotency_key=idempotency_key)
        began_s, wait_s = clock.awake_s(), min(limits.connect_s + limits.first_byte_s, limits.total_s)
        async with AsyncExitStack() as stack:
            coming = model_request_stream(
                model, put.messages, model_settings=put.settings, model_request_parameters=put.parameters
            )
            try:
                stream = await within(stack.enter_async_context(coming), wait_s, clock)
            except TookTooLong:
                late = f"did not answer within {wait_s:g} s"
                raise ExchangeFailed(FailureKind.TRANSIENT, late, is_sent=True) from None
            events, is_first = aiter(stream), True
            while True:
                wait_s, late = patience(limits, spent_s=clock.awake_s() - began_s, is_first=is_first)
                try:
                    event = await within(anext(events), wait_s, clock)
                except StopAsyncIteration:
                    break
                except TookTooLong:
                    raise ExchangeFailed(FailureKind.CUT, late, is_sent=True) from None
                is_first = False
                for piece in answer.read(event):
                    yield piece
            for piece in answer.end(stream):
                yield piece

    async def _options(self, asked: AskedModel) -> tuple[Options, Sequence[str]]:
        """What the library's provider is made with, and all secrets in it."""
        provider, options, secrets = self._provider, Options(), []
        try:
            for name, value in provider.options.items():
                options[name] = await self._keys.value(value) if isinstance(value, str) else value
                if isinstance(value, str) and is_reference(value):
                    secrets.append(str(options[name]))
            if key := await self._keys.find(provider.key, is_needed=provider.needs_key):
                options["api_key"] = key
                secrets.append(key)
        except KeyMissing as missing:
            what = f"cannot be used: {missing}"
            raise ModelFailed(failed(asked, FailureKind.AUTH, what)) from None
        if provider.base_url:
            options["base_url"] = provider.base_url
        return options, secrets

    @asynccontextmanager
    async def _model(
        self, asked: AskedModel, options: Options, secrets: Sequence[str]
    ) -> AsyncIterator[TheirModel]:
        """The model for these options. One of an old key ends with its last request."""
        async with self._opening:
            known = self._open.get(asked.model)
            if known is None or known[0] != options:
                made = await self._made(asked, options, secrets)
                await made.__aenter__()  # the library counts who uses it
                self._open[asked.model] = options, made
                if known is not None:
                    await known[1].__aexit__(None, None, None)
            model = self._open[asked.model][1]
            await model.__aenter__()
        try:
            yield model
        finally:
            await model.__aexit__(None, None, None)

    async def _made(self, asked: AskedModel, options: Options, secrets: Sequence[str]) -> TheirModel:
        try:
            return await in_thread(self._build, self._provider, asked.model, options)
        except ImportError as error:
            raise ModelFailed(self._missing(asked, error)) from None
        except Exception as error:  # the library's, or of whatever client is behind it
            said = str(error)
            if not isinstance(error, InvalidInput) and self._provider.key is None and "API_KEY" in said:
                place = f"[providers.{asked.provider}]"
                what = f'cannot be used: no key was found; write key = "env:NAME" under {place}'
                raise ModelFailed(failed(asked, FailureKind.AUTH, what)) from None
            what = f"cannot be used: {hide(said, secrets).rstrip('. ')}"
            raise ModelFailed(failed(asked, FailureKind.REQUEST, what)) from None

    def _missing(self, asked: AskedModel, error: ImportError) -> Failure:
        what, install = "pydantic-ai", INSTALL
        if is_installed():
            named = _EXTRA.search(str(error))  # the library says which of its extras has it
            what = "the client of this provider"
            install = f"pip install '{named[0]}'" if named else INSTALL
        message = (
            f"{asked.provider}:{asked.model} cannot be used: {what} is not installed; {install}, then resume "
            "the run."
        )
        return Failure(kind=FailureKind.REQUEST, message=message, provider=asked.provider, model=asked.model)
