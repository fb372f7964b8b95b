"""What the previous attempt left for a continued step."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from onward.model.result import LeftFile

FILES_SHOWN = 20
RESPONSE_CHARACTERS_SHOWN = 4_000


class PreviousAttempt(msgspec.Struct, frozen=True):
    """The previous attempt: its directory, if it had one, its answer so far, and its files.

    `artifacts` are the paths of the files in its `artifacts/`, by name: they are not artifacts of the run,
    since the attempt never finished. `response` is its `response.md` or its transcript.
    """

    directory: str | None = None
    response: str = ""
    files: tuple[LeftFile, ...] = ()
    artifacts: Mapping[str, str] = msgspec.field(default_factory=dict)

    def summary(self) -> str:
        """The text for an agent's session that continues. Of a long response, it has the end."""
        lines = [
            "An earlier attempt of this step was cut off. Continue from what it left; do not start over."
        ]
        if self.directory is None:
            lines.append("It left no known files.")
        else:
            lines += [f"Its directory: {self.directory}", *(_line(file) for file in self.files[:FILES_SHOWN])]
            if len(self.files) > FILES_SHOWN:
                lines.append(f"- and {len(self.files) - FILES_SHOWN:,} more")
        if self.response:
            shown = self.response[-RESPONSE_CHARACTERS_SHOWN:]
            more = len(self.response) - len(shown)
            lines.append(f"Its answer so far{f' (without the first {more:,} characters)' if more else ''}:")
            lines.append(shown)
        return "\n".join(lines)


def _line(file: LeftFile) -> str:
    path = file.path if file.path.isprintable() else repr(file.path)
    return f"- {path} ({file.bytes or 0:,} bytes)"


NOTHING_LEFT = PreviousAttempt()
