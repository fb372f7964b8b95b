"""Commands about the program itself: its version, and completion for a shell."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from onward.cli.completion.scripts import SCRIPTS
from onward.cli.exits import FINE
from onward.cli.options import COMMON, Common, Out
from onward.cli.replies import CompletionShown, VersionShown
from onward.version import VERSION


def version(*, common: Common = COMMON, out: Out) -> int:
    """Print the version."""
    if out.is_json:
        shown: VersionShown = {"version": VERSION}
        out.value(shown)
    else:
        out.say(f"onward {VERSION}")
    return FINE


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], Parameter(help="The shell to complete in.")],
    /,
    *,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Print a completion script; where it goes is up to you, for example `onward completion bash > FILE`.

    It completes commands, flags and their values, files, and the runs of the database.
    """
    script = SCRIPTS[shell]
    if out.is_json:
        shown: CompletionShown = {"shell": shell, "script": script}
        out.value(shown)
    else:
        out.say(script, end="")
    return FINE
