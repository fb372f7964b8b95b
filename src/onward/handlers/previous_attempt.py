"""What a continued step finds of the attempt before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from onward.model.leftovers import LeftFile

FILES_TOLD = 20
RESPONSE_CHARACTERS_TOLD = 4_000


@dataclass(frozen=True, slots=True)
class LeftBefore:
    """The attempt before: its directory, if it had one, what it had answered by then, and its files.

    `artifacts` are the files that it had put into `artifacts/`, by name, with their paths: they are not the
    run's, since the attempt never finished. `response` is its `response.md` or its transcript.
    """

    directory: str | None = None
    response: str = ""
    files: tuple[LeftFile, ...] = ()
    artifacts: Mapping[str, str] = field(default_factory=dict)

    def told(self) -> str:
        """For an agent's session: that it continues, and with what. Of a long response, the end."""
        lines = [
            "An earlier attempt of this step was cut off. Continue from what it left; do not start over."
        ]
        if self.directory is None:
            lines.append("It left no known files.")
        else:
            lines += [f"Its directory: {self.directory}", *(_line(file) for file in self.files[:FILES_TOLD])]
            if len(self.files) > FILES_TOLD:
                lines.append(f"- and {len(self.files) - FILES_TOLD:,} more")
        if self.response:
            told = self.response[-RESPONSE_CHARACTERS_TOLD:]
            more = len(self.response) - len(told)
            lines.append(f"Its answer so far{f' (without the first {more:,} characters)' if more else ''}:")
            lines.append(told)
        return "\n".join(lines)


def _line(file: LeftFile) -> str:
    path = file.path if file.path.isprintable() else repr(file.path)
    return f"- {path} ({file.bytes or 0:,} bytes)"


NOTHING_LEFT = LeftBefore()
