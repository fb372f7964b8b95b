"""The reader of pipeline files: recursive descent over one `digraph`.

It reports every problem at once. Begin with `read`. `BlockReader` reads attribute blocks,
`[key=value, ...]`, and the values in them. A statement that cannot be read raises `Trouble`; the reader
reports it and continues with the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from types import MappingProxyType

import msgspec

from onward.errors import InvalidPipeline
from onward.pipeline.draft import ATTRIBUTES_MAX, EMPTY, Block, Draft, Stopped
from onward.pipeline.graph import Graph
from onward.pipeline.source import (
    Diagnostic,
    Lexer,
    Source,
    Token,
    Unreadable,
    Value,
    Written,
    by_position,
    number,
    unescaped,
)


class Trouble(Exception):
    """A statement cannot be read from `start`; the reader reports it and continues with the next one."""

    def __init__(self, message: str, start: int, *, rule: str = "syntax", fix: str | None = None) -> None:
        self.message, self.start, self.rule, self.fix = message, start, rule, fix
        super().__init__(message)


def unexpected(token: Token, expected: str) -> Trouble:
    """Another token was expected here."""
    return Trouble(f"expected {expected}, found {token}", token.start)


def unsupported(message: str, start: int, *, fix: str) -> Trouble:
    """Graphviz supports this, and the dialect does not."""
    return Trouble(message, start, rule="unsupported", fix=fix)


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
                message = f"attribute {key!r} is set twice; the last one applies"
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
                message = f"'\\' before {match[1]!r} has no meaning and is kept unchanged"
                self.draft.warn("unknown_escape", message, start + match.start(), fix="write '\\\\'")
        return unescaped(text[1:-1])


def _number(token: Token) -> Value:
    try:
        return number(token.text)
    except ValueError as error:
        raise Trouble(f"{token} is not a value", token.start, fix=f"write {error}") from None


SUBGRAPH_DEPTH_MAX = 64
STATEMENTS_MAX = 30_000
"""Twice what the largest pipeline needs."""
RESERVED = frozenset({"strict", "digraph", "graph", "subgraph", "node", "edge"})

_ID_RULE = "an id is a letter or _, then letters, digits and _, without quotes"


class ParsedFile(msgspec.Struct, frozen=True):
    """What could be read. If `whole`, no statement is missing from the graph despite the errors."""

    graph: Graph
    errors: tuple[Diagnostic, ...]
    warnings: tuple[Diagnostic, ...]
    whole: bool


def parse(text: str, *, file: str) -> ParsedFile:
    """Read a pipeline; InvalidPipeline carries every syntax error of the file."""
    reading = read(text, file=file)
    if reading.errors:
        raise InvalidPipeline(reading.errors)
    return reading


def read(text: str, *, file: str) -> ParsedFile:
    """Read as much of a pipeline as possible. No text makes this raise."""
    source = Source(text, file)
    if refusal := source.refusal():
        return ParsedFile(Graph(file=file), (refusal,), (), whole=False)
    draft = Draft(source)
    reader = None
    try:
        reader = _Reader(Lexer(source), draft)
        reader.file()
        whole = reader.whole
    except Unreadable as trouble:
        draft.errors.append(source.error(trouble.rule, trouble.message, trouble.start))
        whole = False
    except Stopped:
        whole = False
    graph = draft.graph(reader.name if reader else "", reader.start if reader else 0)
    errors, warnings = (tuple(sorted(found, key=by_position)) for found in (draft.errors, draft.warnings))
    return ParsedFile(graph, errors, warnings, whole)


class _Reader:
    """One method per rule of the grammar; each begins at its first token and ends after its last."""

    def __init__(self, lexer: Lexer, draft: Draft) -> None:
        self.lexer, self.draft = lexer, draft
        self.blocks = BlockReader(lexer, draft)
        self.start = lexer.token.start
        self.name = ""
        self.statements = 0
        self.whole = True

    @property
    def token(self) -> Token:
        return self.lexer.token

    def at_word(self, *words: str) -> bool:
        return self.token.kind == "word" and self.token.text in words

    def file(self) -> None:
        try:
            self.body(self.header())
            self.end_of_file()
        except Trouble as trouble:
            self.draft.stop(trouble.rule, trouble.message, trouble.start, fix=trouble.fix)

    def header(self) -> Token:
        """`digraph NAME {`; gives the opening brace."""
        if self.at_word("strict"):
            self.report(unsupported("'strict' is not supported", self.token.start, fix="remove it"))
            self.lexer.take()
        if self.at_word("graph"):
            self.report(unsupported("the graph is undirected", self.token.start, fix="write 'digraph'"))
        elif not self.at_word("digraph"):
            raise self.misplaced("'digraph NAME {'")
        self.lexer.take()
        self.name = self.group_name("the graph")
        if self.token.kind != "{":
            raise unexpected(self.token, "'{'")
        return self.lexer.take()

    def group_name(self, group: str) -> str:
        if self.token.kind not in ("word", "string", "number"):
            return ""
        name = self.lexer.take()
        if name.kind != "word" or "." in name.text or name.text in RESERVED:
            self.report(unsupported(f"{group} cannot be named {name}", name.start, fix=_ID_RULE))
        return name.text

    def end_of_file(self) -> None:
        if self.at_word("strict", "digraph", "graph"):
            raise unsupported("a second graph starts here", self.token.start, fix="one graph per file")
        if self.token.kind != "end":
            raise unexpected(self.token, "the end of the file")

    def body(self, opened: Token) -> None:
        """Statements up to the closing brace, whatever is wrong with some of them."""
        while self.token.kind != "}":
            if self.token.kind == "end":
                self.draft.stop("syntax", "this '{' is never closed", opened.start, fix="add '}'")
            first = self.token
            try:
                self.statement()
            except Trouble as trouble:
                self.whole = False
                self.report(trouble)
                self.recover(first)
            if self.token.kind == ";":
                self.lexer.take()
        self.lexer.take()

    def statement(self) -> None:
        first = self.token
        if first.kind == ";":
            return
        self.statements += 1
        if self.statements > STATEMENTS_MAX:
            self.draft.stop("limit", f"there are more than {STATEMENTS_MAX:,} statements", first.start)
        if first.kind == "{":
            self.report(unsupported("a group needs a keyword", first.start, fix="write subgraph { ... }"))
            self.subgraph()
        elif first.kind != "word":
            raise self.no_id("a statement")
        elif first.text == "subgraph":
            self.lexer.take()
            self.group_name("a subgraph")
            self.subgraph()
        elif first.text in ("graph", "node", "edge"):
            self.defaults()
        else:
            self.node_or_edges_or_attribute()
        self.end_of_statement()

    def subgraph(self) -> None:
        if self.token.kind != "{":
            raise unexpected(self.token, "'{'")
        if len(self.draft.scopes) > SUBGRAPH_DEPTH_MAX:
            message = f"subgraphs are nested more than {SUBGRAPH_DEPTH_MAX} deep"
            self.draft.stop("limit", message, self.token.start)
        self.draft.open_scope()
        self.body(self.lexer.take())
        self.draft.close_scope()
        if self.token.kind in ("->", "--"):
            raise self.group_endpoint()

    def defaults(self) -> None:
        word = self.lexer.take()
        if self.token.kind != "[":
            fix = f"write {word.text} [ ... ], or choose another id"
            raise Trouble(f"{word} is a reserved word and needs a block here", word.start, fix=fix)
        self.draft.set_defaults(word.text, self.blocks.block(), word.start)

    def node_or_edges_or_attribute(self) -> None:
        first = self.lexer.take()
        if self.token.kind == "=":
            self.graph_attribute(first)
            return
        self.check_id(first)
        chain = [first]
        while self.token.kind == "->":
            self.lexer.take()
            chain.append(self.endpoint())
            self.draft.check_edges(chain)
        if self.token.kind == "--":
            raise unsupported("edges are directed", self.token.start, fix="write '->'")
        block = self.blocks.block() if self.token.kind == "[" else EMPTY
        if len(chain) == 1:
            self.draft.declare(first, block)
        else:
            self.draft.connect(chain, block)

    def graph_attribute(self, key: Token) -> None:
        if "." in key.text:
            raise Trouble(f"{key} needs a graph block", key.start, fix=f"write graph [{key.text}=...]")
        self.lexer.take()
        value, written = self.blocks.value()
        block = Block(MappingProxyType({key.text: value}), MappingProxyType({key.text: written}))
        self.draft.set_defaults("graph", block, key.start)

    def endpoint(self) -> Token:
        if self.token.kind == "{" or self.at_word("subgraph"):
            raise self.group_endpoint()
        if self.token.kind != "word":
            raise self.no_id("a node id")
        token = self.lexer.take()
        self.check_id(token)
        return token

    def check_id(self, token: Token) -> None:
        """Refuse a token that cannot be a node id."""
        if token.text in RESERVED:
            raise Trouble(f"{token} is a reserved word", token.start, fix="choose another id")
        if "." in token.text:
            raise Trouble(f"{token} is not a node id", token.start, fix=_ID_RULE)
        after = self.token
        if after.kind == ":":
            raise unsupported("ports are not supported", after.start, fix="remove the port")
        if self.lexer.touches() and after.kind in ("stray", "number"):
            raise Trouble(f"{after.text[0]!r} cannot be part of a node id", after.start, fix=_ID_RULE)

    def end_of_statement(self) -> None:
        if self.token.kind == "[":
            raise Trouble("a statement has only one block", self.token.start, fix="merge the blocks")
        if self.token.kind not in (";", "}", "end", "word") and not self.lexer.starts_line():
            raise unexpected(self.token, "';' or the end of the line")

    def no_id(self, expected: str) -> Trouble:
        token = self.token
        if token.kind in ("string", "number"):
            return unsupported(f"{token} cannot be a node id", token.start, fix=_ID_RULE)
        return self.misplaced(expected)

    def misplaced(self, expected: str) -> Trouble:
        if self.token.text == "#":
            message = "'#' starts a comment only as the first character of a line"
            return unsupported(message, self.token.start, fix="write // or /* */")
        return unexpected(self.token, expected)

    def group_endpoint(self) -> Trouble:
        fix = "write one edge per node"
        return unsupported("a subgraph cannot be the end of an edge", self.token.start, fix=fix)

    def report(self, trouble: Trouble) -> None:
        self.draft.error(trouble.rule, trouble.message, trouble.start, fix=trouble.fix)

    def recover(self, first: Token) -> None:
        """Skip to where the next statement may begin: past a block or a group, at a ';', '}' or new line."""
        if self.token.start == first.start:
            self.lexer.take()
        if self.blocks.inside:
            self.skip_block()
        depth = 0
        while self.token.kind != "end":
            kind = self.token.kind
            if depth == 0 and (kind in (";", "}") or (self.lexer.starts_line() and kind not in ("[", "{"))):
                return
            depth += (kind == "{") - (kind == "}")
            if depth > SUBGRAPH_DEPTH_MAX:
                message = f"groups are nested more than {SUBGRAPH_DEPTH_MAX} deep"
                self.draft.stop("limit", message, self.token.start)
            self.lexer.take()
            if kind == "[":
                self.skip_block()

    def skip_block(self) -> None:
        self.blocks.inside = False
        while self.token.kind not in ("]", "{", "}", "end") and not self.lexer.starts_statement():
            self.lexer.take()
        if self.token.kind == "]":
            self.lexer.take()
