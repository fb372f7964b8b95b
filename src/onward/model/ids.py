"""Identities: runs, steps, databases and registered pipelines, and the short names people type.

Identity never depends on position in history: a step is its node, its branch and its visit, fixed when it
is planned, and the idempotency key of its effects is the same on every attempt. A registered pipeline is
named as NAME or NAME@VERSION.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import msgspec
from blake3 import blake3

from onward.errors import InvalidInput
from onward.model.values import INTEGER_MAX, Whole

RUN_ID_OWN = re.compile(r"[a-z0-9-]{1,64}")
EXACT = "id:"
"""Before the id of a run, where a program names one: no display id and no prefix is meant."""
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_GENERATED = re.compile(f"[{ALPHABET}]{{26}}")
_DISPLAY = re.compile(f"[{ALPHABET}]{{6}}")
_PAIRS = tuple(first + second for first in ALPHABET for second in ALPHABET)
_TURNED = tuple(second + first for first in ALPHABET for second in ALPHABET)


def sortable_id(now_ms: int, noise: int) -> str:
    """26 characters: 48 bits of milliseconds, then 80 bits of noise, in an alphabet without look-alikes."""
    high, low = noise >> 40, noise & (1 << 40) - 1  # small numbers are quicker to take apart
    return "".join(
        (
            _instant(now_ms),
            _PAIRS[high >> 30], _PAIRS[high >> 20 & 1023], _PAIRS[high >> 10 & 1023], _PAIRS[high & 1023],
            _PAIRS[low >> 30], _PAIRS[low >> 20 & 1023], _PAIRS[low >> 10 & 1023], _PAIRS[low & 1023],
        )
    )  # fmt: skip


@lru_cache(maxsize=8)
def _instant(now_ms: int) -> str:
    now_ms &= (1 << 48) - 1
    return "".join([_PAIRS[now_ms >> shift & 1023] for shift in range(40, -10, -10)])


def derived_run_id(at_us: int, origin: str) -> str:
    """The id of a run that another run creates: always the same for the same origin."""
    noise = int.from_bytes(blake3(origin.encode()).digest(length=10), "big")
    return sortable_id(at_us // 1000, noise)


def keyed_run_id(by: str, key: str) -> str:
    """The id of a run that was asked for under a key: the same whenever the same caller asks again."""
    digest = blake3(f"{by} asks under {key}".encode()).digest(length=16)
    return sortable_id(int.from_bytes(digest[:6], "big"), int.from_bytes(digest[6:], "big"))


PRINCIPAL = re.compile(r"[a-z0-9:-]{1,64}")
CALLERS_KEY = re.compile(r"[ -~]{1,200}")
CALLERS = "token:"
OWN_KEYS = ("message/", "attempt ", "child of ", "restart of ", "arrived ")
"""How the names of Onward's own requests begin. None begins as the keys of a server's callers do."""


def caller_key(principal: str, key: str) -> str:
    """The key of a request that a server's caller made: no other caller can write the same one.

    The principal is the id of a token, which has no slash: so the first one ends it.
    """
    if not PRINCIPAL.fullmatch(principal):
        raise InvalidInput(f"{principal!r} is not the id of a token.")
    if not CALLERS_KEY.fullmatch(key):
        raise InvalidInput("a key has 1 to 200 printable ASCII characters.")
    return f"{CALLERS}{principal}/{key}"


def own_key(key: str) -> str:
    """A key as its caller wrote it."""
    return key.partition("/")[2] if key.startswith(CALLERS) else key


def check_key(key: str) -> str:
    """The key of a caller's request, unless it is a name that Onward gives its own requests."""
    if key.startswith(OWN_KEYS):
        raise InvalidInput(
            f"the key {key[:_SHOWN]!r} starts with a prefix that Onward reserves for its own requests; "
            "choose another key."
        )
    return key


def check_run_id(run_id: str) -> str:
    """The caller's own run id, if it can be one."""
    if not RUN_ID_OWN.fullmatch(run_id):
        raise InvalidInput(f"{run_id!r} cannot be a run id; use 1 to 64 of the characters a-z, 0-9 and '-'.")
    return run_id


@lru_cache(maxsize=1024)
def display_id(run_id: str) -> str:
    """The six characters by which people call a run; a function of its id, so a fork has its own."""
    number = int.from_bytes(blake3(run_id.encode()).digest(length=4), "big")
    return _TURNED[number & 1023] + _TURNED[number >> 10 & 1023] + _TURNED[number >> 20 & 1023]


def is_display_id(name: str) -> bool:
    """Whether a name has the form of a display id."""
    return _DISPLAY.fullmatch(name) is not None


def called(run_id: str) -> str:
    """What people call a run: the id that was chosen for it, or else its display id."""
    return display_id(run_id) if _GENERATED.fullmatch(run_id) else run_id


def step_id(node: str, visit: int, branch: str = "") -> str:
    """`node#visit`, in a branch `branch/node#visit`."""
    return f"{branch}/{node}#{visit}" if branch else f"{node}#{visit}"


def branch_of(step: str) -> str:
    """The branch id of a step; the empty string is the main branch."""
    return step.rpartition("/")[0]


def place(node: str, branch: str = "") -> str:
    """A node within one branch: what visits, outcomes and retries are counted by."""
    return f"{branch}/{node}" if branch else node


def place_of(step: str) -> str:
    """The place that a step is a visit of."""
    return step.rpartition("#")[0]


def whereabouts(step: str) -> tuple[str, str]:
    """The place that a step is a visit of, and the branch that it is in."""
    at = step.rpartition("#")[0]
    return at, at.rpartition("/")[0]


def node_of(place: str) -> str:
    """The node at a place."""
    return place.rpartition("/")[2]


def new_branch_id(step: str, target: str, number: int = 1) -> str:
    """The id of the branch that the fan-out `step` opens to `target`; `number` tells several apart."""
    return f"{step}.{target}" if number == 1 else f"{step}.{target}.{number}"


def step_of_gate(gate: str) -> str:
    """The step that a gate belongs to: a gate of the pipeline is a step itself."""
    return gate.partition(":")[0]


def is_in_step(gate: str) -> bool:
    """Whether a gate was opened inside a step, and has the id `step:call`."""
    return ":" in gate


def child_run_id(run_id: str, step: str, at_us: int) -> str:
    """The run that a managing step manages: it sorts by when the step began, and no other step has it."""
    return derived_run_id(at_us, f"child of {idempotency_key(run_id, step)}")


def called_run_id(run_id: str, step: str, call: str, at_us: int) -> str:
    """The run that a call of a flow waits for: it sorts by when the flow began, and no other call has it."""
    return derived_run_id(at_us, f"child of {idempotency_key(run_id, step)} at {call}")


def idempotency_key(run_id: str, step: str) -> str:
    """The same on every attempt of a step, for the service that it calls."""
    return f"{run_id}/{step}"


IDENTITY_CHARACTERS = 8


class Identity(msgspec.Struct, frozen=True):
    """A database, told from every other one: also from a copy of it under another name.

    Directories of runs that were made up to `unmarked_until_us` may not say whose they are: that is from
    before databases had an identity.
    """

    name: str
    unmarked_until_us: int = 0

    @property
    def short(self) -> str:
        """The identity as a part of a file's name."""
        return blake3(self.name.encode()).hexdigest()[:IDENTITY_CHARACTERS]


PIPELINE_NAME_CHARACTERS_MAX = 100
PIPELINE_VERSION = Whole(1, INTEGER_MAX)
_PIPELINE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_SHOWN = 40


class Wanted(NamedTuple):
    """A registered pipeline, and its version; None for the one that is enabled."""

    name: str
    version: int | None = None

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}@{self.version}"


def can_be_registered(word: str) -> bool:
    """Whether a word has the form of NAME or NAME@VERSION; then it has no dot and no slash, as files have."""
    name, at, version = word.partition("@")
    return _is_pipeline_name(name) and (not at or version.isdecimal())


def check_pipeline_name(name: str) -> str:
    """The name, if a pipeline can be registered under it."""
    if not _is_pipeline_name(name):
        shown = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
        raise InvalidInput(
            f"{shown!r} cannot be the name of a registered pipeline; use 1 to {PIPELINE_NAME_CHARACTERS_MAX} "
            "of the characters a-z, A-Z, 0-9, '_' and '-', and no '-' at the beginning."
        )
    return name


def read_wanted(text: str) -> Wanted:
    """The pipeline that is written as NAME or NAME@VERSION."""
    name, at, version = text.partition("@")
    check_pipeline_name(name)
    return Wanted(name, read_version(version) if at else None)


def read_version(text: str) -> int:
    """The number of a version that is written."""
    try:
        return PIPELINE_VERSION.read(text)
    except ValueError as error:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise InvalidInput(f"the version {shown!r} is not {error}.") from None


def _is_pipeline_name(name: str) -> bool:
    return len(name) <= PIPELINE_NAME_CHARACTERS_MAX and _PIPELINE_NAME.fullmatch(name) is not None
