"""The reader of pipeline files: recursive descent over one `digraph`, with every problem reported at once."""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from onward.errors import InvalidPipeline
from onward.pipeline.diagnostic import Diagnostic, by_position
from onward.pipeline.dot.block import BlockReader
from onward.pipeline.dot.draft import EMPTY, Block, Draft, Stopped
from onward.pipeline.dot.lexer import Lexer, Token, Unreadable
from onward.pipeline.dot.source import Source, decode
from onward.pipeline.dot.trouble import Trouble, unexpected, unsupported
from onward.pipeline.graph import Graph

__all__ = ["Reading", "decode", "parse", "read"]

SUBGRAPH_DEPTH_MAX = 64
STATEMENTS_MAX = 30_000
"""Twice what the largest pipeline needs."""
RESERVED = frozenset({"strict", "digraph", "graph", "subgraph", "node", "edge"})

_ID_RULE = "an id is a letter or _, then letters, digits and _, without quotes"


class Reading(msgspec.Struct, frozen=True):
    """What could be read. If `whole`, no statement is missing from the graph despite the errors."""

    graph: Graph
    errors: tuple[Diagnostic, ...]
    warnings: tuple[Diagnostic, ...]
    whole: bool


def parse(text: str, *, file: str) -> Reading:
    """Read a pipeline; InvalidPipeline carries every syntax error of the file."""
    reading = read(text, file=file)
    if reading.errors:
        raise InvalidPipeline(reading.errors)
    return reading


def read(text: str, *, file: str) -> Reading:
    """Read as much of a pipeline as possible. No text makes this raise."""
    source = Source(text, file)
    if refusal := source.refusal():
        return Reading(Graph(file=file), (refusal,), (), whole=False)
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
    return Reading(graph, errors, warnings, whole)


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
