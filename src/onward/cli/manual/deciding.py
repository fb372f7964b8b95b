"""Examples and exit codes of the commands under `Decide`."""

from __future__ import annotations

from collections.abc import Mapping

from onward.cli.exits import FAILED, FINE, UNFINISHED, USAGE
from onward.cli.manual.page import CONTINUE, ENDED, LOOK, MISUSED, REFUSED, RUN, Manual

DECIDING: Mapping[str, Manual] = {
    "retry": Manual({"onward retry 4k7m2q": "run the stopped step again, and continue"}, CONTINUE),
    "skip": Manual({"onward skip 4k7m2q": "continue after the stopped step"}, CONTINUE),
    "abort": Manual({"onward abort 4k7m2q": "give the run up; nothing is undone"}, LOOK),
    "pause": Manual(
        {"onward pause 4k7m2q": "stop after the current step", "onward pause 4k7m2q --after now": "stop now"},
        {
            FINE: "the run is paused, or completed meanwhile; with --no-wait, it was asked",
            FAILED: f"{ENDED}; or {REFUSED}",
            USAGE: MISUSED,
            UNFINISHED: "it has been asked and did not stop in time, or was interrupted",
        },
    ),
    "cancel": Manual(
        {'onward cancel 4k7m2q --reason "wrong branch"': "end it for good"},
        {
            FINE: "the run is cancelled, or completed meanwhile; with --no-wait, it was asked",
            FAILED: f"{ENDED}; or {REFUSED}",
            USAGE: MISUSED,
            UNFINISHED: "it has been asked and did not stop in time",
        },
    ),
    "dismiss": Manual(
        {"onward dismiss 4k7m2q": "a message in its chat does not resume it any more; `onward resume` does"},
        LOOK,
    ),
    "steer": Manual({'onward steer 4k7m2q "use the new API"': "the next agent step is told so"}, LOOK),
    "answer": Manual(
        {
            "onward answer": "the open gates of all runs",
            "onward answer 4k7m2q Yes": "choose, and continue the run",
            'onward answer 4k7m2q --reject --text "too slow" --no-run': "only decide",
        },
        {**RUN, FINE: "the run completed; with --no-run, the answer was taken; without a run, listed"},
    ),
}
