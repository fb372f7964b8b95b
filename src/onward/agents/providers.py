"""Providers as settings describe them, the names of models (`provider:model`), and keys by reference.

A setting that cannot be used is refused in one sentence. A provider holds no key, only where to find it; a
key is read when a request is made, and kept nowhere:

    env:NAME       a variable of this process
    file:PATH      the first line of a file
    command:LINE   the first line that a shell command prints

`TimeLimits` is how long a provider may take.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from onward.clock import NO_DEADLINE
from onward.errors import InvalidInput, SpawnFailed
from onward.model.values import GRACE, KNOWN_PROVIDERS, OTHER_FORMAT, WIRE_FORMATS, KnownProvider, shown
from onward.process import Spawn
from onward.threads import in_thread


class TimeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds. A model that reasons may be silent for minutes before its first word."""

    connect_s: float = 10.0
    first_byte_s: float = 600.0
    """Until the answer begins, after the connection is made."""
    between_s: float = 120.0
    """Between two pieces of an answer; comments that keep a connection alive count as pieces."""
    total_s: float = 1800.0


def patience(limits: TimeLimits, *, spent_s: float, is_first: bool) -> tuple[float, str]:
    """How long the next piece of an answer may take, and what is said of one that takes longer.

    `spent_s` is the time since the request; what the head of the answer took is part of the first piece's.
    """
    wait_s, late = limits.between_s, f"sent nothing for {limits.between_s:g} s"
    if is_first:
        wait_s = limits.connect_s + limits.first_byte_s - spent_s
        late = f"sent nothing for {limits.first_byte_s:g} s"
    if limits.total_s - spent_s < wait_s:
        return limits.total_s - spent_s, f"took longer than {limits.total_s:g} s"
    return wait_s, late


OPENAI = "openai"
KEY_HEADERS = {"openai": "authorization", "anthropic": "x-api-key", "google": "x-goog-api-key"}
"""The header in which each format sends the key."""
CEILINGS = ("max_tokens", "max_completion_tokens")
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_SECRET = re.compile("key|token|secret|auth|cookie|password", re.IGNORECASE)
_THEIRS = re.compile(r"[a-z][a-z0-9-]*")
_NAMED = {"api_key": "key", "base_url": "base_url"}
_OURS = ("content-type", "content-length", "host", "accept", "accept-encoding")


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint that speaks one of the wire formats."""

    name: str
    base_url: str
    format: str = OPENAI
    key: str | None = None
    """Where to find the key; None: it needs none."""
    needs_key: bool = True
    headers: Mapping[str, str] = {}
    limits: TimeLimits = TimeLimits()
    ceiling: str | None = None
    """The name of the field for the ceiling; None: by the model's name."""
    reasoning: bool | None = None
    """Whether its models take a reasoning effort; None: by the model's name."""
    stream_usage: bool = True
    """Whether it is asked to count tokens of streams; a few servers refuse the question."""
    prefill: bool = False
    """Whether it continues an assistant's message that ends the conversation, and answers with the rest."""
    tools: bool = True
    """Whether its models know tools; if not, they are told in the prompt, and wishes come as JSON."""
    prompt_cache: bool = True
    """Whether it is asked to cache the conversation so far; Anthropic's format only."""
    provider: str = ""
    """How pydantic-ai names it, if it is asked through that; empty: by its own name."""
    options: Mapping[str, str | int | float | bool] = {}
    """What else pydantic-ai's provider is made with; a text may be a reference as a key is."""

    def __repr__(self) -> str:
        return f"Provider({self.name} at {self.base_url})"

    @property
    def host(self) -> str:
        """The host of its address."""
        return urlsplit(self.base_url).hostname or ""


def read_providers(
    tables: Mapping[str, Any], *, base_urls: Mapping[str, str] | None = None, where: str = "onward.toml"
) -> Mapping[str, Provider]:
    """The known providers, and those of `[providers.NAME]`; InvalidInput for the first bad setting.

    `base_urls` are other addresses of known providers, by their names, as variables name them.
    """
    found = {name: _known(known, (base_urls or {}).get(name)) for name, known in KNOWN_PROVIDERS.items()}
    for name, table in tables.items():
        place = f"[providers.{name}] in {where}"
        if not _NAME.fullmatch(name):
            raise InvalidInput(f"{place} has an invalid name; use lower-case letters, digits, - and _.")
        if not isinstance(table, dict):
            raise InvalidInput(
                f"providers.{name} in {where} is {shown(table)}; write a table [providers.{name}]."
            )
        found[name] = _provider(name, table, place, found.get(name))
    return found


def _known(known: KnownProvider, base_url: str | None) -> Provider:
    url = _address(base_url, known.url_variable) if base_url else known.base_url
    # A server of one's own, behind a variable such as OPENAI_BASE_URL, often has no key.
    return Provider(
        name=known.name,
        base_url=url,
        format=known.format,
        key=f"env:{known.key_variable}",
        needs_key=url == known.base_url,
    )


def _provider(name: str, table: Mapping[str, Any], place: str, default: Provider | None) -> Provider:
    unknown = sorted(table.keys() - READERS.keys())
    if unknown:
        raise InvalidInput(
            f"{place} sets {', '.join(unknown)}; known settings are {', '.join(sorted(READERS))}."
        )
    _check_format(table, place, default)
    if "base_url" not in table and default is None and table.get("format") != OTHER_FORMAT:
        raise InvalidInput(f'{place} has no base_url; write one, such as "http://127.0.0.1:8000/v1".')
    read = {key: READERS[key](value, f"{key} of {place}") for key, value in table.items()}
    times = {key: read.pop(key) for key in TimeLimits.__struct_fields__ if key in read}
    if times:
        read["limits"] = TimeLimits(**times)
    if default is None:
        return _checked(Provider(name=name, **({"base_url": ""} | read)), place)
    if "key" in read:
        read["needs_key"] = True
    elif "base_url" in read and read["base_url"] != KNOWN_PROVIDERS[name].base_url:
        read |= {"key": None, "needs_key": False}  # a known key does not go to whatever a file names
    return _checked(msgspec.structs.replace(default, **read), place)


def _check_format(table: Mapping[str, Any], place: str, default: Provider | None) -> None:
    """Each way to ask has settings that the other cannot keep."""
    if table.get("format") == OTHER_FORMAT and default is not None:
        raise InvalidInput(
            f"{place} has format {OTHER_FORMAT}, which {default.name} does not need; choose another name."
        )
    wrong = OURS_ONLY if table.get("format") == OTHER_FORMAT else THEIRS_ONLY
    if found := sorted(table.keys() & wrong):
        only = f"is not {OTHER_FORMAT}" if wrong is OURS_ONLY else f"is {OTHER_FORMAT}"
        raise InvalidInput(
            f"{place} sets {', '.join(found)}, which only apply if format {only}; leave them out."
        )


def _checked(provider: Provider, place: str) -> Provider:
    own = KEY_HEADERS.get(provider.format)
    for name in provider.headers:
        if name.lower() == own:
            raise InvalidInput(
                f"headers of {place} sets {name}, which Onward sets itself; write the key under `key`."
            )
    return provider


def _address(value: object, what: str) -> str:
    return read_address(value, what).rstrip("/")


def read_address(value: object, what: str) -> str:
    """An http address without a user, a query or a fragment; InvalidInput if it is none."""
    example = "https://example.com/v1"
    if not isinstance(value, str):
        raise InvalidInput(f"{what} is {shown(value)}; write an address in quotes, such as {example}.")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise InvalidInput(f"{what} is not an address; write one such as {example}.") from None
    if parts.username is not None or parts.password is not None:
        raise InvalidInput(
            f"{what} contains a user name or a password; write only the address, and the key under `key`."
        )
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not _is_clean(value):
        raise InvalidInput(
            f"{what} is {shown(value)}, which is not an http address; write one such as {example}."
        )
    if parts.query or parts.fragment:
        raise InvalidInput(f"{what} has a query or a fragment; write an address such as {example}.")
    return value


def _is_clean(text: str) -> bool:
    """urlsplit drops some characters in silence, and another reader of addresses may not."""
    return all("!" <= character <= "~" and character not in '\\"<>^`{|}' for character in text)


def _key(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f'{what} is not text; write a reference such as "env:ACME_API_KEY".')
    return check_reference(value, what)


def read_headers(value: object, what: str) -> Mapping[str, str]:
    """Headers whose secrets are references; InvalidInput for one that cannot be sent, or is a secret."""
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InvalidInput(f'{what} is not a table of strings; write headers = {{ "X-Team" = "search" }}.')
    for name, text in value.items():
        if not _HEADER.fullmatch(name) or not text.isprintable() or not text.isascii():
            raise InvalidInput(f"{what} has {shown(name)}, which cannot be sent as a header.")
        if name.lower() in _OURS:
            raise InvalidInput(f"{what} sets {name}, which Onward sets itself; leave it out.")
        if is_reference(text):
            check_reference(text, f"{name} of {what}")
        elif _SECRET.search(name):
            raise InvalidInput(
                f"{what} has {name}, which looks like a secret; write a reference such as env:NAME."
            )
    return dict(value)


def _seconds(value: object, what: str) -> float:
    return GRACE.check(value, what)


def _switch(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(f"{what} is {shown(value)}; write true or false.")
    return value


def _ceiling(value: object, what: str) -> str:
    if value not in CEILINGS:
        raise InvalidInput(f"{what} is {shown(value)}; write one of {', '.join(CEILINGS)}.")
    return str(value)


def _format(value: object, what: str) -> str:
    if value not in (*WIRE_FORMATS, OTHER_FORMAT):
        raise InvalidInput(
            f"{what} is {shown(value)}; write one of {', '.join((*WIRE_FORMATS, OTHER_FORMAT))}."
        )
    return str(value)


def _theirs(value: object, what: str) -> str:
    if not isinstance(value, str) or not _THEIRS.fullmatch(value):
        raise InvalidInput(f'{what} is {shown(value)}; write a provider of pydantic-ai, such as "bedrock".')
    return value


def _options(value: object, what: str) -> Mapping[str, str | int | float | bool]:
    if not isinstance(value, dict) or not all(
        isinstance(one, str | int | float | bool) for one in value.values()
    ):
        raise InvalidInput(
            f'{what} is not a table of strings and numbers; write options = {{ region_name = "eu-west-1" }}.'
        )
    for name, one in value.items():
        if name in _NAMED:
            raise InvalidInput(f"{what} has {name}; write it as a setting of its own, `{_NAMED[name]}`.")
        if isinstance(one, str) and is_reference(one):
            check_reference(one, f"{name} of {what}")
        elif _SECRET.search(name):
            raise InvalidInput(
                f"{what} has {name}, which looks like a secret; write a reference such as env:NAME."
            )
    return dict(value)


READERS: Mapping[str, Callable[[object, str], Any]] = {
    "base_url": _address,
    "format": _format,
    "key": _key,
    "headers": read_headers,
    "ceiling": _ceiling,
    "reasoning": _switch,
    "stream_usage": _switch,
    "prefill": _switch,
    "tools": _switch,
    "prompt_cache": _switch,
    "provider": _theirs,
    "options": _options,
    **dict.fromkeys(TimeLimits.__struct_fields__, _seconds),
}
"""The settings of `[providers.NAME]`."""
THEIRS_ONLY = frozenset({"provider", "options"})
OURS_ONLY = frozenset({"headers", "ceiling", "reasoning", "stream_usage", "prefill", "prompt_cache"})
"""Those of one way to ask."""


def split_name(name: str) -> tuple[str, str]:
    """The provider and the model of a full name."""
    provider, _, model = name.partition(":")
    return provider, model


def full_name(model: str, *, provider: str = "", default: str | None, known: Mapping[str, Provider]) -> str:
    """`provider:model` for what a node says (`llm_model`, `llm_provider`); `default` if it names no model.

    A model without a provider is OpenAI's. A model's own name may hold colons, if its provider is named.
    """
    given, colon, rest = model.partition(":")
    if provider:
        wanted = model.removeprefix(f"{provider}:")
        if not wanted and default is not None and split_name(default)[0] == provider:
            return default
    elif colon:
        provider, wanted = given, rest
    elif model:
        provider, wanted = OPENAI, model
    elif default:
        return full_name(default, default=None, known=known)
    else:
        raise InvalidInput(
            "no model is configured; write llm_model on the node, or set ONWARD_MODEL, or `model` under "
            "[agents] in onward.toml."
        )
    if provider not in known:
        raise InvalidInput(
            f"the model {shown(model or provider)} names an unknown provider {shown(provider)}; known "
            f"providers are {', '.join(sorted(known))}. Write provider:model, and describe other providers "
            "under [providers.NAME] in onward.toml."
        )
    if not wanted:
        raise InvalidInput(f"the provider {provider!r} needs a model; write {provider}:MODEL.")
    return f"{provider}:{wanted}"


KINDS = ("env", "file", "command")
COMMAND_S_MAX = 30.0
KEY_BYTES_MAX = 16 * 1024
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SENDABLE = re.compile(r"[\x21-\x7e]+")


class KeyMissing(Exception):
    """There is no usable key; the message says where it was looked for, and never what was found."""


def check_reference(text: str, where: str) -> str:
    """The reference itself; InvalidInput if it is none, which is how a key in a file is noticed."""
    kind, colon, rest = text.partition(":")
    if (
        not colon
        or kind not in KINDS
        or not rest.strip()
        or (kind == "env" and not _VARIABLE_NAME.fullmatch(rest))
    ):
        raise InvalidInput(
            f"{where} is not a reference; write env:NAME, file:PATH or command:LINE, never the key itself."
        )
    return text


def is_reference(text: str) -> bool:
    """Whether a text names a key instead of being one."""
    return text.partition(":")[0] in KINDS and ":" in text


class Keys:
    """Reads keys. `variables` gives those of the process; `directory` is where paths and commands begin."""

    def __init__(
        self,
        *,
        variables: Callable[[], Mapping[str, str]],
        spawn: Spawn,
        directory: str = ".",
        known_as: Callable[[str, str], object] = lambda name, value: None,
    ) -> None:
        """`known_as` gets the name and the value of every key that is read, so that it is stored nowhere."""
        self._variables, self._spawn, self._directory = variables, spawn, directory
        self._known_as = known_as

    async def find(self, reference: str | None, *, is_needed: bool) -> str:
        """The key; empty if there is none and none is needed."""
        if reference is None:
            return ""
        kind, _, rest = reference.partition(":")
        if kind == "env" and not is_needed and not self._variables().get(rest):
            return ""
        return await self.value(reference)

    async def value(self, text: str) -> str:
        """What a reference stands for; any other text stands for itself."""
        kind, _, rest = text.partition(":")
        if not is_reference(text):
            return text
        found = await {"env": self._of_variable, "file": self._of_file, "command": self._of_command}[kind](
            rest
        )
        first = found.strip().partition("\n")[0].strip()
        if not first:
            raise KeyMissing(f"{kind}:{rest} is empty")
        if not _SENDABLE.fullmatch(first):
            raise KeyMissing(f"{kind}:{rest} contains characters that a key cannot have")
        self._known_as("provider key" if kind == "command" else os.path.basename(rest), first)
        return first

    async def _of_variable(self, name: str) -> str:
        found = self._variables().get(name)
        if found is None:
            raise KeyMissing(f"the variable {name}, which should contain its API key, is not set")
        return found

    async def _of_file(self, path: str) -> str:
        try:
            return await in_thread(_read, self._directory, path)
        except OSError as error:
            raise KeyMissing(f"the file {path} with its key cannot be read ({error.strerror})") from None
        except UnicodeDecodeError:
            raise KeyMissing(f"the file {path} with its key is not a text file") from None

    async def _of_command(self, line: str) -> str:
        try:
            ended = await self._spawn.run(
                line,
                env=self._variables(),
                cwd=self._directory,
                timeout_s=COMMAND_S_MAX,
                deadline=NO_DEADLINE,
            )
        except (SpawnFailed, InvalidInput):
            raise KeyMissing("the command that prints its key cannot be started") from None
        if ended.timed_out:
            raise KeyMissing(f"the command that prints its key took longer than {COMMAND_S_MAX:g} s")
        if ended.exit_code != 0:
            raise KeyMissing(f"the command that prints its key failed with exit code {ended.exit_code}")
        return ended.stdout


def _read(directory: str, path: str) -> str:
    with open(os.path.join(directory, os.path.expanduser(path)), encoding="utf-8") as file:
        return file.read(KEY_BYTES_MAX)
