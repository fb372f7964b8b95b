"""How many model tokens a text may be, without the model's tokenizer: for reserving, not for billing.

No byte-level tokenizer makes more tokens than bytes. Of prose and code, about 4 and 3 letters are a token; of
digits, punctuation, long words without a space (hashes, base64) and other scripts, a byte can be one. The
estimate counts a third of the letters and every other byte: 1 to 1.8 times what a tokenizer with a small
vocabulary counted in prose, code, JSON, hashes and six languages (`tests/agents/test_prices.py`).
"""

from __future__ import annotations

import re
import string

import msgspec

from onward.agents.model.request import (
    ModelRequest,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from onward.agents.model.stream import Usage

_LETTERS = (string.ascii_letters + " \n\t").encode()
_UNBROKEN = re.compile(rb"[A-Za-z0-9+/=_-]{24,}")
PER_MESSAGE = 8
"""Its role and the marks around it."""
PER_REQUEST = 16


def text_tokens(text: str) -> int:
    """An upper estimate for one text."""
    data = text.encode("utf-8", "surrogatepass")
    words = _UNBROKEN.sub(b"", data)
    others = len(words.translate(None, _LETTERS))
    return len(data) - len(words) + others + -(-(len(words) - others) // 3)


def estimate_tokens(request: ModelRequest) -> int:
    """An upper estimate of a request's input; the ceiling of its answer is not in it."""
    total = PER_REQUEST + text_tokens(request.system)
    for message in request.messages:
        total += PER_MESSAGE
        for part in message.parts:
            total += PER_MESSAGE + text_tokens(_text(part)) + _signed_tokens(part)
    if request.tools or request.format is not None:
        schemas = msgspec.json.encode((request.tools, request.format)).decode()
        total += text_tokens(schemas)
    return total


def estimated_usage(request: ModelRequest, *, pieces: int, characters: int) -> Usage:
    """The usage of an answer, if the provider counted nothing: servers send a token a piece, or several."""
    output = max(pieces, -(-characters // 3))
    if request.max_tokens is not None:
        output = min(output, request.max_tokens)
    return Usage(input=estimate_tokens(request), output=output, is_estimated=True)


def _signed_tokens(part: Text | Reasoning | ToolCall | ToolResult) -> int:
    """Of a signature: it may stand for reasoning that nobody was shown and that is counted all the same."""
    signature = part.signature if isinstance(part, Reasoning | ToolCall) else ""
    return -(-len(signature) // 3)


def _text(part: Text | Reasoning | ToolCall | ToolResult) -> str:
    return part.name + part.arguments if isinstance(part, ToolCall) else part.text
