"""What the help of a command says besides its flags, and the exit codes that many of them share."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onward.cli.exits import FAILED, FINE, INTERRUPTED, UNFINISHED, USAGE

Codes = Mapping[int | str, str]
REFUSED = "it was refused, or the database could not be used"
MISUSED = "the command line is wrong, or what it names cannot be read"
LOOK: Codes = {FINE: "done", FAILED: REFUSED, USAGE: MISUSED, INTERRUPTED: "Ctrl-C"}
RUN: Codes = {
    FINE: "the run completed",
    FAILED: f"the run failed or was cancelled; or {REFUSED}",
    USAGE: "the command line or the pipeline is wrong; nothing was executed",
    UNFINISHED: "the run is not finished and can be continued: waiting, paused or interrupted",
}
CONTINUE: Codes = {**RUN, FINE: "the run completed; with --queue, it is queued"}
ENDED = "the run ended before it could be stopped, and failed"


class Manual(msgspec.Struct, frozen=True):
    """What the help of a command says besides its flags. `examples`: a command line, and what it does."""

    examples: Mapping[str, str]
    exits: Codes
    takes: str = ""
    """The names behind a command, if its signature does not say them well."""
