"""The page about `--json`: every reply with its fields, their types and meanings."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

from onward.cli.main import COMMANDS
from onward.cli.replies import REPLIES, FailureShown, JsonReply

FIELDS = Path(__file__).with_name("json_fields.toml")
NAMES = Path(__file__).parent.parent / "tests" / "cli" / "json_names.json"
ANYWHERE = "any"
ALIKE = 3  # an object with fewer fields than this is not worth a reference
_PLAIN = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    Any: "any value",
}


def described() -> dict[str, type]:
    """Every object that a reply consists of, by name, in the order of the commands."""
    found: dict[str, type] = {}
    for kind in (*(reply.type for replies in REPLIES.values() for reply in replies), FailureShown):
        _collect(kind, found)
    return found


def _collect(kind: Any, found: dict[str, type]) -> None:
    if is_typeddict(kind) and kind.__name__ not in found:
        found[kind.__name__] = kind
        for hint in get_type_hints(kind, include_extras=True).values():
            _collect(hint, found)
    for part in get_args(kind):
        _collect(part, found)


def type_words(kind: Any) -> str:
    """A type in the words of JSON."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is NotRequired:
        return f"{type_words(parts[0])}, may be absent"
    if origin in (Union, UnionType):
        return " or ".join(map(type_words, parts))
    if origin is Literal:
        return "string"
    if origin is list:
        return f"list of {type_words(parts[0])}"
    if origin is dict:
        return f"object of {type_words(parts[1])}"
    return kind.__name__ if is_typeddict(kind) else _PLAIN[kind]


def names() -> dict[str, dict[str, str]]:
    """The fields of every object with their types."""
    return {
        name: {field: type_words(hint) for field, hint in get_type_hints(kind, include_extras=True).items()}
        for name, kind in described().items()
    }


def replies() -> dict[str, dict[str, str]]:
    """What each command prints, by what tells its replies apart."""
    return {
        name: {reply.when or "always": type_words(reply.type) for reply in found}
        for name, found in REPLIES.items()
    }


def promised() -> dict[str, dict[str, dict[str, str]]]:
    """The names that programs rely on, as they were first published."""
    found: dict[str, dict[str, dict[str, str]]] = json.loads(NAMES.read_text("utf-8"))
    return found


def kept_names() -> str:
    """The same with what is new; what was published stays, so that a test can tell of a change."""
    before, now = promised(), {"objects": names(), "replies": replies()}
    merged = {
        part: {
            name: {**now[part].get(name, {}), **before[part].get(name, {})}
            for name in {**before[part], **now[part]}
        }
        for part in now
    }
    return json.dumps(merged, indent=1, sort_keys=True) + "\n"


def meanings() -> dict[str, dict[str, str]]:
    """What the fields of each object mean; a field without a meaning is an error."""
    with FIELDS.open("rb") as file:
        said: Mapping[str, Mapping[str, str]] = tomllib.load(file)
    found, missing, every = {}, [], names()
    for name, fields in every.items():
        sections = [said.get(one, {}) for one in (*_lineage(name, every), ANYWHERE)]
        found[name] = {
            field: next((section[field] for section in sections if field in section), "") for field in fields
        }
        missing += [f"{name}.{field}" for field, meaning in found[name].items() if not meaning]
    if missing:
        raise SystemExit(f"say in {FIELDS.name} what these fields mean: {', '.join(missing)}")
    return found


def _lineage(name: str, every: Mapping[str, Mapping[str, str]]) -> list[str]:
    """An object and those whose fields it has, too; the largest first."""
    own = every[name].items()
    above = [one for one, fields in every.items() if len(fields) >= ALIKE and fields.items() < own]
    return [name, *sorted(above, key=lambda one: -len(every[one]))]


def json_page(generated: str) -> str:
    """Every command's reply, and every object in one."""
    missing = [name for name, _, _ in COMMANDS if name not in REPLIES]
    if missing:
        raise SystemExit(f"say in cli/replies.py what these commands print with --json: {', '.join(missing)}")
    lines = [
        *("# JSON", "", generated, ""),
        "With `--json` a command prints its reply on standard output, as one line, and everything for people",
        "on standard error. Fields are only ever added: a program must ignore fields that it does not know,",
        "and a test refuses to remove or rename one, or to change its type. Times are RFC 3339, in UTC.",
        *("", "## Replies", "", "| command | reply |", "|---|---|"),
        *(f"| `{name}` | {'; '.join(map(_reply, REPLIES[name]))} |" for name, _, _ in COMMANDS),
        "",
        "A command that is refused or fails prints a [FailureShown](#failureshown) instead; the",
        "[exit code](commands.md) says which. `events` prints the fields of each [event](events.md) beside",
        "`seq`, `kind`, `at` and `run`. `export` without `--out` prints only the export itself.",
        *("", "## Objects"),
    ]
    said = meanings()
    for name, kind in described().items():
        lines += _object(kind, names(), said[name])
    return "\n".join(lines) + "\n"


def _reply(reply: JsonReply) -> str:
    words = _linked(type_words(reply.type)) + (", one per line" if reply.is_lines else "")
    return f"{words} ({reply.when})" if reply.when else words


def _linked(words: str) -> str:
    known = described()
    return " ".join(
        f"[{word}](#{word.lower()})" if word in known else word
        for word in words.replace(",", " ,").split(" ")
    ).replace(" ,", ",")


def _object(kind: type, every: Mapping[str, Mapping[str, str]], said: Mapping[str, str]) -> Iterator[str]:
    name = kind.__name__
    _, *above = _lineage(name, every)
    own = [field for field in every[name] if not any(field in every.get(base, {}) for base in above)]
    yield from ("", f"### {name}", "", " ".join((kind.__doc__ or "").split()), "")
    if above:
        yield from (f"All fields of [{above[0]}](#{above[0].lower()}), and:", "")
    yield from ("| field | type | meaning |", "|---|---|---|")
    for field in own:
        yield f"| `{field}` | {_linked(every[name][field])} | {said[field]} |"
