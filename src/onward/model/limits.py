"""Limits: the scopes that they are set for, the amounts that they are on, and how long names may be.

A scope is `chat/ID`, `project/ID`, `run/ID` or `day/YYYY-MM-DD` in UTC. The bare word (`chat`, `project`,
`run`, `day`) is the default of that kind: its limits count for every scope of the kind that has none of its
own.

An amount is what calls cost: tokens, money in millionths of a dollar, and calls.

Names, those of scopes too, stand in indexes of the database, and there is an end to what those hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import astuple

from onward.errors import InvalidInput
from onward.model.call import LimitHit, Reserved, Usage
from onward.model.chat import RUN_CHATS
from onward.model.row import needed_directory
from onward.model.run import Run

SCOPE_KINDS = ("chat", "day", "project", "run")
DAY = "day"
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def day_of(at_us: int) -> str:
    """The UTC day of a time."""
    return datetime.fromtimestamp(at_us / 1_000_000, UTC).date().isoformat()


def scopes_of(*, root: str, chat: str | None, project: str | None, at_us: int) -> tuple[str, ...]:
    """The scopes that a call counts in, in their order. `root` is the run that it is charged to."""
    found = [f"day/{day_of(at_us)}", f"run/{root}"]
    found += [f"chat/{chat}"] if chat else []
    found += [f"project/{project}"] if project else []
    return tuple(sorted(found))


def is_over(scope: str, at_us: int) -> bool:
    """Whether it is the scope of a day on which no call begins any more."""
    return scope.startswith(f"{DAY}/") and scope < f"{DAY}/{day_of(at_us)}"


def scopes_now(scopes: tuple[str, ...], at_us: int) -> tuple[str, ...]:
    """The same scopes for a call that begins now: its day may be another than when it was prepared."""
    return tuple(f"{DAY}/{day_of(at_us)}" if is_over(scope, at_us) else scope for scope in scopes)


def kind_of(scope: str) -> str:
    """The kind of a scope; a default is of the kind that it is the default of."""
    return scope.partition("/")[0]


@lru_cache(maxsize=1_000)  # all calls of a run have the same scopes
def part_of(scopes: tuple[str, ...], kind: str) -> str:
    """The id of the scope of this kind; '' if there is none."""
    return next((id for id in (scope.partition("/") for scope in scopes) if id[0] == kind), ("", "", ""))[2]


def check_scope(text: str) -> str:
    """The scope that this text names."""
    kind, slash, id = text.partition("/")
    if kind not in SCOPE_KINDS or (slash and not id) or not text.isprintable():
        raise InvalidInput(
            f"{text!r} is not a scope; write chat/ID, project/ID, run/ID or day/YYYY-MM-DD, or one of "
            f"{', '.join(SCOPE_KINDS)} for the default of that kind."
        )
    if kind == DAY and slash and not _is_day(id):
        raise InvalidInput(f"{id!r} is not a day; write day/YYYY-MM-DD (UTC), or day for every day.")
    return check_name("the scope", text)


def _is_day(text: str) -> bool:
    try:
        return bool(_DAY.fullmatch(text)) and bool(date.fromisoformat(text))
    except ValueError:
        return False


MEASURES = ("tokens", "cost", "calls")
"""The names of what is limited, in the order of the fields of `Amounts`."""
WARN_PERCENT = 80
AMOUNT_MAX = 10**15
"""The largest limit, and where sums stop growing: every database can add it up and multiply it by a hundred,
and every reader of JSON has its digits."""
CALL_AMOUNT_MAX = 10**12
"""The most tokens, and the most money in millionths, that one call can reserve or be charged for."""
CHAT_TOKENS = 500_000
"""What a chat may spend in tokens, unless something else is said; a new database has it as a limit."""
CALLS_PER_RUN = 300
"""How many calls a run may make, unless something else is said; a new database has it as a limit."""
CALLS_PER_CHAT_RUN = 30
"""How many calls a run of a chat may make, unless another limit is set for runs."""
VISITS = "visits"
"""What a run's own ceiling of visits is raised by: `run.visits`. It is no amount, and no scope has it."""
MICRO = 1_000_000
_WHOLE = re.compile(r"[0-9]{1,21}|[0-9]{1,3}(,[0-9]{3}){1,6}")
_DOLLARS = re.compile(r"\$?([0-9]{1,13}|[0-9]{1,3}(,[0-9]{3}){1,4})(\.[0-9]{1,6})?")


def bounded_sum(*amounts: int) -> int:
    """The sum of amounts; AMOUNT_MAX if it is more."""
    return min(sum(amounts), AMOUNT_MAX)


def is_possible(usage: Usage | None, cost_micro: int | None) -> bool:
    """Whether any one call can have used so much. A provider that says otherwise says nothing."""
    counts = () if usage is None else (*astuple(usage), usage.tokens)
    return all(0 <= count <= CALL_AMOUNT_MAX for count in (*counts, cost_micro or 0))


class Amounts(NamedTuple):
    """So many tokens, so much money, so many calls."""

    tokens: int = 0
    cost_micro: int = 0
    calls: int = 0

    def plus(self, other: Amounts) -> Amounts:
        """The sum of both, which stops growing at AMOUNT_MAX."""
        return Amounts(*map(bounded_sum, self, other))

    def minus(self, other: Amounts) -> Amounts:
        """What is left of this without the other; of a sum that had stopped growing, that may be nothing."""
        return Amounts(*(max(here - there, 0) for here, there in zip(self, other, strict=True)))


NO_AMOUNTS = Amounts()


def amounts_of(reserved: Reserved) -> Amounts:
    """What a call reserves in each of its scopes."""
    wanted = (reserved.tokens, reserved.cost_micro, reserved.calls)
    return Amounts(*(min(max(amount, 0), CALL_AMOUNT_MAX) for amount in wanted))


def used_amounts(usage: Usage | None, cost_micro: int | None, most: Amounts) -> Amounts:
    """What a call is charged for that ended by itself; `most` is what was reserved for it.

    Without `usage` the provider counted nothing: no tokens and no money, but a call was made. If only its
    price is not known, the money that was reserved counts.
    """
    if usage is None:
        return Amounts(0, cost_micro or 0, most.calls)
    return Amounts(usage.tokens, most.cost_micro if cost_micro is None else cost_micro, most.calls)


def check_measure(text: str) -> str:
    """The measure that this text names."""
    if text not in MEASURES:
        raise InvalidInput(f"unknown limit {text[:40]!r}; write tokens, cost or calls.")
    return text


def read_amount(measure: str, text: str) -> int:
    """How much is meant: a whole number, or dollars for cost. 0 is no limit."""
    is_cost = check_measure(measure) == "cost"
    if not (_DOLLARS if is_cost else _WHOLE).fullmatch(text):
        what = "dollars, such as 2.50" if is_cost else "a whole number, such as 200000 or 200,000"
        raise InvalidInput(f"{text[:40]!r} cannot be a limit on {measure}; write {what}, or 0 for no limit.")
    number = Decimal(re.sub(r"[$,]", "", text))
    amount = int(number * MICRO) if is_cost else int(number)
    if amount > AMOUNT_MAX:
        raise InvalidInput(f"a limit of {text[:40]} on {measure} is too large; write 0 for no limit.")
    return amount


def shown_amount(measure: str, amount: int) -> str:
    """An amount for people: `200,000`, or `$2.50`."""
    if measure != "cost":
        return f"{amount:,}"
    dollars = f"{Decimal(amount) / MICRO:,.6f}".rstrip("0")
    whole, _, cents = dollars.partition(".")
    return f"${whole}.{cents.ljust(2, '0')}"


def raise_argument(scope: str, measure: str, amount: int) -> str:
    """What `--raise` takes to raise a limit of a run: `run.tokens=200000`, `day.cost=2.50`."""
    typed = shown_amount(measure, amount).replace(",", "").lstrip("$")
    return f"{kind_of(scope)}.{measure}={typed}"


VISITS_MAX = 10**9


def raised_visits(raises: Sequence[tuple[str, str, int]]) -> int:
    """How often these let a run visit each node; 0 if they say nothing of visits."""
    return max((value or VISITS_MAX for _, measure, value in raises if measure == VISITS), default=0)


def leaves_more_room(hit: LimitHit, *, limit: int, spent: int) -> bool:
    """Whether a call that did not fit may fit by now; 0 is no limit."""
    return not limit or limit - spent > hit.limit - hit.spent


def raised_amount(hit: LimitHit, *, limit: int, spent: int, reserved: int) -> int:
    """A limit that leaves room for the call that did not fit, and more: at least twice the present one.

    It is rounded up to two digits, so that it is easy to read and to type. If that is more than a limit can
    be, none is left: 0.
    """
    least = max(2 * limit, spent + reserved + hit.wanted)
    step: int = 10 ** max(0, len(str(least)) - 2)
    enough = -(-least // step) * step
    return enough if enough <= AMOUNT_MAX else 0


# -- how long a name may be ------------------------------------------------------------------------------
NAME_CHARACTERS_MAX = 500
"""At four bytes each this is 2,000 bytes; PostgreSQL cannot index more than 2,704."""
SCOPED_CHARACTERS_MAX = NAME_CHARACTERS_MAX - len("project/")
_SHOWN = 40


def check_name(what: str, name: str) -> str:
    """The name, if it can be stored."""
    if len(name) <= NAME_CHARACTERS_MAX and name.isascii():
        return name  # as nearly all are
    check_text(what, name)
    if len(name) > NAME_CHARACTERS_MAX:
        raise InvalidInput(
            f"{what} {name[:_SHOWN] + '…'!r} has {len(name):,} characters; shorten it to at most "
            f"{NAME_CHARACTERS_MAX}."
        )
    return name


def check_text(what: str, text: str) -> None:
    """Refuse text that has bytes which are no characters, as a shell passes them on."""
    try:
        text.encode()
    except UnicodeEncodeError:
        shown = text[:_SHOWN].encode(errors="replace").decode()
        raise InvalidInput(f"{what} {shown!r} is not valid UTF-8; write it in UTF-8.") from None


def check_path(what: str, path: str | None) -> None:
    """Refuse a path that no file system has, or no database stores."""
    if path is not None:
        check_text(what, path)
        if "\0" in path:
            raise InvalidInput(f"{what} {path[:_SHOWN]!r} has a NUL character; name one that exists.")


def check_scoped(what: str, id: str | None) -> None:
    """Refuse the id of a chat or project that could not be stored with the limits that it has."""
    if id is not None and not (id and id.isprintable()):
        raise InvalidInput(f"{what} {id[:_SHOWN]!r} cannot be stored; use printable characters.")
    if id is not None and len(id) > SCOPED_CHARACTERS_MAX:
        raise InvalidInput(f"{what} has {len(id)} characters; shorten it to at most {SCOPED_CHARACTERS_MAX}.")


def check_names(run: Run) -> None:
    """Refuse a run with a name that cannot be stored."""
    check_name("the pipeline name", run.pipeline)
    check_name("the node id", run.start_node)
    if run.exclusive_key is not None:
        check_name("the exclusive key", run.exclusive_key)
    if run.chat is not None:
        check_scoped("the chat", run.chat)
        if run.chat.startswith(RUN_CHATS):
            raise InvalidInput(
                f"the chat {run.chat[:_SHOWN]!r} has the name of a run's own chat; choose another."
            )
    if run.project is not None:
        check_scoped("the project", run.project)
    for need in run.needs:
        check_name("the handler name" if needed_directory(need) is None else "the directory", need)
