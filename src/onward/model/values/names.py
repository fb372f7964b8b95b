"""How long a name may be: names stand in indexes of the database, and there is an end to what those hold."""

from __future__ import annotations

from onward.errors import InvalidInput
from onward.model.needs import needed_directory
from onward.model.run import Run

NAME_CHARACTERS_MAX = 500
"""At four bytes each this is 2,000 bytes; PostgreSQL cannot index more than 2,704."""
_SHOWN = 40


def check_name(what: str, name: str) -> str:
    """The name, if it is short enough to be stored."""
    if len(name) > NAME_CHARACTERS_MAX:
        raise InvalidInput(
            f"{what} {name[:_SHOWN] + '…'!r} has {len(name):,} characters; shorten it to at most "
            f"{NAME_CHARACTERS_MAX}."
        )
    return name


def check_names(run: Run) -> None:
    """Refuse a run with a name that cannot be stored."""
    check_name("the pipeline name", run.pipeline)
    check_name("the node id", run.start_node)
    check_name("the exclusive key", run.exclusive_key or "")
    for need in run.needs:
        check_name("the handler name" if needed_directory(need) is None else "the directory", need)
