"""How long a name may be: names stand in indexes of the database, and there is an end to what those hold."""

from __future__ import annotations

from onward.errors import InvalidInput
from onward.model.chats.message import RUN_CHATS
from onward.model.needs import needed_directory
from onward.model.run import Run

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
