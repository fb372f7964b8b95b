"""Which messages a pipeline is for: the intents and scopes that its graph names, and their words.

    graph [
        intents="build, question, fix",
        intent.build="something new", intent.build.words="build, create, from scratch",
        intent.question.words="^what, ^why, ?, !^could you",
        intent.fix.words="fix, bug", intent.fix.has_files=true,
        scopes="full, frontend, backend"
    ]

`intent.NAME` describes an intent for the model that classifies messages; `intent.NAME.words` are for the
rules that do it without one. The same holds for scopes. A word is found as a whole and in any case, and may
be a phrase. `^` before it: only at the beginning of the message. `?` alone: the message ends with a question
mark. `!` before one of these: a message that has it is not meant. The name itself is one of its words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from onward.model.chat import KIND_NAME
from onward.pipeline.graph import Graph
from onward.pipeline.source import Value, as_boolean, as_text

INTENTS_KEY, SCOPES_KEY = "intents", "scopes"
INTENT_BEGIN, SCOPE_BEGIN = "intent.", "scope."
_WORDS, _HAS_FILES = "words", "has_files"
NAMES_MAX, WORDS_MAX, WORD_CHARACTERS_MAX, ABOUT_CHARACTERS_MAX = 50, 200, 100, 1_000
LOOKED_AT_CHARACTERS = 10_000
"""How much of a message its words are looked for in, from its beginning."""
_BLANKS = re.compile(r"\s+")
_WORDLESS_FROM = "\u2e80"
"""From here on are scripts that put no blanks between words."""


class MessageKind(msgspec.Struct, frozen=True):
    """An intent or a scope. `has_files`, of an intent: also meant where there are files and nothing before it
    fits."""

    name: str
    words: tuple[str, ...] = ()
    about: str = ""
    has_files: bool = False

    def fits(self, text: str, *, has_files: bool) -> bool:
        """Whether a message is of this kind, as far as its words say."""
        said = _plain(text[:LOOKED_AT_CHARACTERS])
        is_asked = text.rstrip().endswith(("?", "？"))
        if any(_has(word[1:], said, is_asked) for word in self.words if word.startswith("!")):
            return False
        wanted = (self.name, *(word for word in self.words if not word.startswith("!")))
        return (self.has_files and has_files) or any(_has(word, said, is_asked) for word in wanted)


class Purpose(msgspec.Struct, frozen=True):
    """What a pipeline says about the messages that it is for; nothing, if it names no intents and scopes."""

    intents: tuple[MessageKind, ...] = ()
    scopes: tuple[MessageKind, ...] = ()


def purpose_of(graph: Graph) -> Purpose:
    """What a graph says; what cannot be read says nothing."""
    return Purpose(
        _kinds(graph.attrs, INTENTS_KEY, INTENT_BEGIN),
        _kinds(graph.attrs, SCOPES_KEY, SCOPE_BEGIN),
    )


def is_about_messages(key: str) -> bool:
    """Whether an attribute of a graph describes an intent or a scope."""
    return key.startswith((INTENT_BEGIN, SCOPE_BEGIN))


def mistakes(graph: Graph) -> Iterator[tuple[str, str]]:
    """The attributes about intents and scopes that cannot be read, each with what to write."""
    for listed, begin in ((INTENTS_KEY, INTENT_BEGIN), (SCOPES_KEY, SCOPE_BEGIN)):
        names = _names(graph.attrs, listed)
        for key, value in graph.attrs.items():
            if not key.startswith(begin):
                continue
            name, _, what = key.removeprefix(begin).partition(".")
            if name not in names:
                yield key, f'name {name} in {listed}, as in {listed}="{", ".join((*names, name))}"'
            elif what not in ("", _WORDS) and (begin, what) != (INTENT_BEGIN, _HAS_FILES):
                yield key, f"write {_allowed(begin, name)}"
            elif expected := _expected(what, value):
                yield key, f"write {expected}"


def _allowed(begin: str, name: str) -> str:
    one = f"{begin}{name}"
    if begin == INTENT_BEGIN:
        return f"{one}, {one}.{_WORDS} or {one}.{_HAS_FILES}"
    return f"{one} or {one}.{_WORDS}"


def as_names(value: Value) -> tuple[str, ...]:
    """Names of intents or scopes, separated by commas; a ValueError says what was expected."""
    names = tuple(name.strip() for name in as_text(value).split(","))
    is_good = all(KIND_NAME.fullmatch(name) for name in names)
    if not is_good or len(set(names)) < len(names) or len(names) > NAMES_MAX:
        raise ValueError(
            f"at most {NAMES_MAX} different names, separated by commas; each has up to 50 letters, digits, _ "
            "and -, and starts with a letter"
        )
    return names


def as_words(value: Value) -> tuple[str, ...]:
    """Words that mark a message, separated by commas; a ValueError says what was expected."""
    words = tuple(_plain(word) for word in as_text(value).split(","))
    if len(words) > WORDS_MAX or not all(_is_word(word) for word in words):
        raise ValueError(
            f"at most {WORDS_MAX} words or phrases of up to {WORD_CHARACTERS_MAX} characters, separated by "
            "commas; ^ before one for the start of a message, ? for a question mark at its end, ! for not"
        )
    return words


def _is_word(word: str) -> bool:
    bare = word.removeprefix("!")
    if bare == "?":
        return True
    bare = bare.removeprefix("^")
    return bare[:1] not in ("", "!", "^") and len(bare) <= WORD_CHARACTERS_MAX


def _expected(what: str, value: Value) -> str:
    """What to write instead of a value that cannot be read; nothing if it can be."""
    try:
        if what == _WORDS:
            as_words(value)
        elif what == _HAS_FILES:
            as_boolean(value)
        elif not 0 < len(as_text(value)) <= ABOUT_CHARACTERS_MAX:
            return f"a description of at most {ABOUT_CHARACTERS_MAX:,} characters"
    except ValueError as error:
        return str(error)
    return ""


def _names(attrs: Mapping[str, Value], listed: str) -> tuple[str, ...]:
    try:
        return as_names(attrs[listed]) if listed in attrs else ()
    except ValueError:
        return ()


def _kinds(attrs: Mapping[str, Value], listed: str, begin: str) -> tuple[MessageKind, ...]:
    return tuple(_kind(attrs, name, f"{begin}{name}") for name in _names(attrs, listed))


def _kind(attrs: Mapping[str, Value], name: str, key: str) -> MessageKind:
    words, has_files = attrs.get(f"{key}.{_WORDS}"), attrs.get(f"{key}.{_HAS_FILES}", False)
    return MessageKind(
        name,
        () if words is None or _expected(_WORDS, words) else as_words(words),
        as_text(attrs.get(key, "")),
        has_files=not _expected(_HAS_FILES, has_files) and as_boolean(has_files),
    )


def _plain(text: str) -> str:
    return _BLANKS.sub(" ", text.strip().lower().replace("’", "'"))


def _has(word: str, said: str, is_asked: bool) -> bool:
    if word == "?":
        return is_asked
    bare = word.lower().removeprefix("^")
    begin = r"\A" if word.startswith("^") else _edge(bare[0], r"(?<!\w)")
    end = _edge(bare[-1], r"(?!\w)")
    return re.search(begin + re.escape(bare) + end, said) is not None


def _edge(character: str, boundary: str) -> str:
    return boundary if character < _WORDLESS_FROM else ""
