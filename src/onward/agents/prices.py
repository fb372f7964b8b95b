"""What models cost: a table with its date, the user's own prices over it, and an estimate of tokens.

A price is an integer: millionths of a unit of money per million model tokens. One dollar per million tokens
is 1,000,000. Sums are exact, in integers.

How many tokens a text may be is estimated without the model's tokenizer: for reserving, not for billing. No
byte-level tokenizer makes more tokens than bytes. Ordinary words make fewer, and most of their letters are
among the ten of `_COMMON`; those of random words, base64 or proteins are not. So three common letters count
as a token, every other byte as one, the space before a word as none. That is not below what the strictest of
eight tokenizers counted in 42 kinds of text, and 1.2 to 2.1 times it in English, code and JSON
(`tests/agents/test_prices.py`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from importlib.resources import files
from typing import Any

import msgspec

from onward.agents.model import ModelRequest, Reasoning, Text, TokenUsage, ToolCall, ToolResult
from onward.errors import InvalidInput
from onward.model.values import shown

MILLION = 1_000_000
PRICE_MAX = 1_000_000
"""Of a million tokens, in whole units of money; a higher one is a mistake."""
_DATE = re.compile(r"-(?:\d{4}-\d{2}-\d{2}|20\d{6})$")


class Rates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a million tokens cost. None: as much as other input, or as other writes into a cache."""

    input: int
    output: int
    cached_input: int | None = None
    cache_write: int | None = None
    cache_write_1h: int | None = None

    def parts(self, usage: TokenUsage) -> int:
        """What these tokens cost, in millionths of what is counted in."""
        cached, written, long = usage.cached_input, usage.cache_write, usage.cache_write_1h
        write = self.input if self.cache_write is None else self.cache_write
        return (
            (usage.input - cached - written) * self.input
            + cached * (self.input if self.cached_input is None else self.cached_input)
            + (written - long) * write
            + long * (write if self.cache_write_1h is None else self.cache_write_1h)
            + usage.output * self.output
        )


class LongRates(Rates, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rates of a request with more input than `above`."""

    above: int


class Price(Rates, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rates of one model; some cost more when the input is long."""

    long: LongRates | None = None


class PriceSource(msgspec.Struct, frozen=True, kw_only=True):
    """The day on which prices were right, and where they come from."""

    as_of: str
    source: str


class PriceList(msgspec.Struct, frozen=True, kw_only=True):
    """A table of prices, with the source of each provider's."""

    sources: Mapping[str, PriceSource]
    unit: str
    models: Mapping[str, Price]


class Prices:
    """The price of every known model, by its full name."""

    def __init__(self, models: Mapping[str, Price]) -> None:
        self._models = models

    @property
    def models(self) -> Mapping[str, Price]:
        """All that are listed."""
        return self._models

    def find(self, name: str) -> Price | None:
        """The price of `provider:model`; of a version with a date, if it is not listed, that of its name."""
        return self._models.get(name) or self._models.get(_DATE.sub("", name))


def shipped_prices() -> PriceList:
    """The table that comes with this version."""
    return msgspec.json.decode((files("onward.agents") / "prices.json").read_bytes(), type=PriceList)


def read_prices(tables: Mapping[str, Any], *, where: str = "onward.toml") -> Prices:
    """The shipped prices, with those of `[prices."provider:model"]` in their place."""
    own = {name: _price(table, f'[prices."{name}"] in {where}') for name, table in tables.items()}
    return Prices({**shipped_prices().models, **own})


def cost_micro(usage: TokenUsage, price: Price) -> int:
    """What a request cost, in millionths of a unit of money, rounded up."""
    is_long = price.long is not None and usage.input > price.long.above
    rates: Rates = price.long if is_long and price.long is not None else price
    return -(-max(rates.parts(usage), 0) // MILLION)


def most_micro(usage: TokenUsage, price: Price) -> int:
    """What a request with this input and output can cost at most: a cache may be written with all of it."""
    written = TokenUsage(input=usage.input, output=usage.output, cache_write=usage.input)
    return max(cost_micro(usage, price), cost_micro(written, price))


def _price(table: object, place: str) -> Price:
    example = "write input = 1.25 and output = 10, in money per million tokens"
    known = Rates.__struct_fields__
    if not isinstance(table, dict):
        raise InvalidInput(f"{place} is {shown(table)}; {example}.")
    unknown = sorted(table.keys() - set(known))
    if unknown:
        raise InvalidInput(
            f"{place} sets {', '.join(unknown)}; known settings are {', '.join(sorted(known))}."
        )
    for needed in ("input", "output"):
        if needed not in table:
            raise InvalidInput(f"{place} has no {needed}; {example}.")
    read: dict[str, Any] = {name: _micro(value, f"{name} of {place}") for name, value in table.items()}
    return Price(**read)


def _micro(value: object, what: str) -> int:
    """Money as an integer. A float is taken as it is written: 0.1 is a tenth, exactly."""
    try:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        micro = Decimal(repr(value)) * MILLION
        if not 0 <= micro <= PRICE_MAX * MILLION or micro != int(micro):
            raise ValueError
    except (ValueError, InvalidOperation, OverflowError):
        raise InvalidInput(
            f"{what} is {shown(value)}; write a number from 0 to {PRICE_MAX} with at most 6 decimals."
        ) from None
    return int(micro)


_COMMON = b"etaoinsrhl"
_KINDS = bytes(
    ord("e" if byte in _COMMON else "x" if chr(byte) in string.ascii_letters else " " if byte == 32 else ".")
    for byte in range(256)
)
"""A common letter, another letter, a space, or anything else."""
_INDENTS = (b" " * 16, b" " * 8, b" " * 4)
PER_MESSAGE = 8
"""Its role and the marks around it."""
PER_REQUEST = 16


def text_tokens(text: str) -> int:
    """An upper estimate for one text; a tokenizer that marks its beginning may count one more."""
    data = text.encode("utf-8", "surrogatepass")
    for spaces in _INDENTS:
        data = data.replace(spaces, b"\t")
    kinds = data.translate(_KINDS)
    before_words = kinds.count(b" e") + kinds.count(b" x")
    alone = kinds.replace(b" ", b".").split(b".").count(b"e")  # each is a word of its own
    common = kinds.count(b"e") - alone
    return len(data) - before_words - common + -(-common // 3)


def estimate_tokens(request: ModelRequest) -> int:
    """An upper estimate of a request's input; the ceiling of its answer is not in it."""
    total = PER_REQUEST + text_tokens(request.system)
    for message in request.messages:
        total += PER_MESSAGE
        for part in message.parts:
            total += PER_MESSAGE + text_tokens(_counted_text(part)) + _signed_tokens(part)
    if request.tools or request.format is not None:
        schemas = msgspec.json.encode((request.tools, request.format)).decode()
        total += text_tokens(schemas)
    return total


def estimated_usage(request: ModelRequest, *, written: Sequence[str]) -> TokenUsage:
    """The usage of an answer, if the provider counted nothing: servers send a token a piece, or several.

    `written` are its pieces, reasoning included.
    """
    output = max(len(written), text_tokens("".join(written)))
    if request.max_tokens is not None:
        output = min(output, request.max_tokens)
    return TokenUsage(input=estimate_tokens(request), output=output, is_estimated=True)


def _signed_tokens(part: Text | Reasoning | ToolCall | ToolResult) -> int:
    """Of a signature: it may stand for reasoning that nobody was shown and that is counted all the same."""
    signature = part.signature if isinstance(part, Reasoning | ToolCall) else ""
    return -(-len(signature) // 3)


def _counted_text(part: Text | Reasoning | ToolCall | ToolResult) -> str:
    return part.name + part.arguments if isinstance(part, ToolCall) else part.text
