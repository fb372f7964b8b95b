"""What the previous attempt left, for a step that continues with it: read only when the step asks."""

from __future__ import annotations

from onward.handlers.room import NOTHING_LEFT, PreviousAttempt
from onward.model.run import OpenStep
from onward.receipts.folder import ARTIFACTS, RESPONSE, Folder, Path
from onward.receipts.run_directory import attempts_before, files_of_attempt, last_with_something

TRANSCRIPTS = (RESPONSE, "transcript.jsonl", "transcript.md", "transcript.txt")
RESPONSE_BYTES_MAX = 1024 * 1024


def left_before(folder: Folder, run_id: str, opened: OpenStep) -> PreviousAttempt:
    """What the newest earlier try of this step left that left anything."""
    try:
        earlier = attempts_before(folder, run_id, opened.step, opened.attempt, opened.tries)
        path = last_with_something(folder, run_id, earlier)
        if path is None:
            return NOTHING_LEFT
        directory, response = folder.path(run_id, *path), _response(folder, (run_id, *path))
    except OSError:  # something else has that name, and is not followed
        return NOTHING_LEFT
    files = files_of_attempt(directory).files
    inside = f"{ARTIFACTS}/"
    artifacts = {
        file.path.removeprefix(inside): f"{directory}/{file.path}"
        for file in files
        if file.path.startswith(inside)
    }
    return PreviousAttempt(directory, response, files, artifacts)


def _response(folder: Folder, parts: Path) -> str:
    for name in TRANSCRIPTS:
        content = folder.read(parts, name, limit=RESPONSE_BYTES_MAX)
        if content:
            return content.decode(errors="replace")
    return ""
