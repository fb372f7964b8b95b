"""The reader of attribute blocks, `[key=value, ...]`, and of the values in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from types import MappingProxyType

from onward.pipeline.dot.draft import ATTRIBUTES_MAX, Block, Draft
from onward.pipeline.dot.lexer import Lexer, Token
from onward.pipeline.dot.source import Written, unescaped
from onward.pipeline.dot.trouble import Trouble, unexpected, unsupported
from onward.pipeline.value import Value, number

_Attribute = tuple[str, int, Value, Written]
"""Key, position of the key, value, position of the value."""
_WORDS: dict[str, Value] = {"true": True, "false": False}
_ESCAPE = re.compile(r'\\(?:[nt"\\]|(.))', re.DOTALL)


class BlockReader:
    """Reads blocks from the lexer. `inside` stays true while one is open, even if reading it fails."""

    def __init__(self, lexer: Lexer, draft: Draft) -> None:
        self.lexer, self.draft = lexer, draft
        self.inside = False

    def block(self) -> Block:
        """The block that the current token opens."""
        opened = self.lexer.token
        self.inside = True
        values: dict[str, Value] = {}
        written: dict[str, Written] = {}
        attributes = chain(self._plain(), self._irregular(opened))
        for count, (key, start, value, place) in enumerate(attributes, start=1):
            if count > ATTRIBUTES_MAX:
                self.draft.too_many_attributes(opened.start)
            if key in values:
                message = f"attribute {key!r} is set twice; the last one counts"
                self.draft.warn("repeated_attribute", message, start, fix="remove one")
            values[key] = value
            written[key] = place
        self.inside = False
        return Block(MappingProxyType(values), MappingProxyType(written))

    def _plain(self) -> Iterator[_Attribute]:
        source = self.draft.source
        for match in self.lexer.plain_attributes():
            key, word, string, digits = match.groups()
            start, end = match.span(match.lastindex or 0)
            if string is not None:
                value = string[1:-1] if "\\" not in string else self._string(string, start)
            else:
                value = number(digits) if word is None else _WORDS.get(word, word)
            yield key, match.start(1), value, Written(source, start, end)

    def _irregular(self, opened: Token) -> Iterator[_Attribute]:
        while self.lexer.token.kind != "]":
            if self._left_open(opened):
                return
            key = self._key()
            yield key.text, key.start, *self.value()
            self._separator()
        self.lexer.take()

    def _left_open(self, opened: Token) -> bool:
        if self.lexer.token.kind not in ("end", "{", "}") and not self.lexer.starts_statement():
            return False
        self.draft.error("syntax", "this '[' is never closed", opened.start, fix="add ']'")
        return True

    def _key(self) -> Token:
        key = self.lexer.token
        if key.kind == "string":
            raise unsupported("an attribute's key cannot be quoted", key.start, fix="remove the quotes")
        if key.kind != "word":
            raise unexpected(key, 'an attribute such as label="..."')
        self.lexer.take()
        if self.lexer.token.kind != "=":
            raise unexpected(self.lexer.token, f"'=' after {key.text!r}")
        self.lexer.take()
        return key

    def _separator(self) -> None:
        token = self.lexer.token
        if token.kind == ",":
            self.lexer.take()
            if self.lexer.token.kind == "]":
                self.draft.warn("separator", "nothing follows this ','", token.start, fix="remove it")
        elif token.kind == ";":
            self.lexer.take()
            self.draft.warn("separator", "attributes are separated by ','", token.start, fix="write ','")
        elif token.kind == "word" and not self.lexer.starts_statement():
            complain = self.draft.warn if self.lexer.starts_line() else self.draft.error
            complain("separator", f"a ',' is missing before {token}", token.start, fix="add ','")
        elif token.kind not in ("]", "word", "end", "{", "}"):
            raise unexpected(token, "',' or ']'")

    def value(self) -> tuple[Value, Written]:
        """The value of the current token, and its position."""
        token = self._value_token()
        return self._value(token), Written(self.draft.source, token.start, token.end)

    def _value_token(self) -> Token:
        if self.lexer.token.kind == "<":
            fix = "write a quoted string"
            raise unsupported("HTML labels are not supported", self.lexer.token.start, fix=fix)
        if self.lexer.token.kind not in ("string", "word", "number"):
            raise unexpected(self.lexer.token, "a value")
        token = self.lexer.take()
        if self.lexer.token.kind == "+":
            fix = "write one string; it may span lines"
            raise unsupported("strings cannot be joined with '+'", self.lexer.token.start, fix=fix)
        return token

    def _value(self, token: Token) -> Value:
        if token.kind == "string":
            return self._string(token.text, token.start)
        if token.kind == "number":
            return _number(token)
        return _WORDS.get(token.text, token.text)

    def _string(self, text: str, start: int) -> str:
        for match in _ESCAPE.finditer(text) if "\\" in text else ():
            if match[1]:
                message = f"'\\' before {match[1]!r} has no meaning and is kept as it is"
                self.draft.warn("unknown_escape", message, start + match.start(), fix="write '\\\\'")
        return unescaped(text[1:-1])


def _number(token: Token) -> Value:
    try:
        return number(token.text)
    except ValueError as error:
        raise Trouble(f"{token} is not a value", token.start, fix=f"write {error}") from None
