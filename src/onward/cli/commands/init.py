"""`onward init`: a project to begin with. It has a flow, a graph, a test and settings, and runs at once."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from onward.cli.options import COMMON, Common, Out
from onward.cli.output import FINE
from onward.config import load_settings
from onward.errors import InvalidInput

if TYPE_CHECKING:
    from onward.cli.replies import ProjectMade

CONTENT = {
    "flow.py": "flow.py.txt",
    "graph.dot": "graph.dot",
    "test_flow.py": "test_flow.py.txt",
    "onward.toml": "onward.toml",
}
"""The files of a new project, and where the package has them."""
IGNORE = ".gitignore"
"""Written too, unless there is one: what git must not have."""
IGNORED = "# databases, files of runs, and the token of this machine\n.onward/\n"


def init(
    directory: Annotated[
        str, Parameter(name="DIRECTORY", help="Where to write it; created if it does not exist.")
    ] = ".",
    /,
    *,
    common: Common = COMMON,
    out: Out,
) -> int:
    """Write a small project: a flow, a graph, a test and settings. Files that exist are never overwritten."""
    place = Path(directory)
    there = [name for name in CONTENT if (place / name).exists()]
    if there:
        raise InvalidInput(f"{place / there[0]} already exists; name another directory.")
    try:
        place.mkdir(parents=True, exist_ok=True)
        for name, source in CONTENT.items():
            text = files("onward.cli").joinpath("project", source).read_text(encoding="utf-8")
            with (place / name).open("x", encoding="utf-8") as file:
                file.write(text)
        if not (place / IGNORE).exists():
            (place / IGNORE).write_text(IGNORED, encoding="utf-8")
    except OSError as error:
        is_file = isinstance(error, FileExistsError | NotADirectoryError) and place.is_file()
        why = "it is a file, and no directory" if is_file else error.strerror
        raise InvalidInput(f"cannot write into {place}: {why}.") from None
    if out.is_json:
        made: ProjectMade = {"directory": str(place.absolute()), "files": list(CONTENT)}
        out.value(made)
        return FINE
    out.say(f"{place} has {', '.join(CONTENT)}. Next:")
    simulated = "" if load_settings().has_provider else " --simulate --real-tools"
    if directory != ".":
        out.say(f"  cd {directory}")
    out.say("  onward run flow.py:publish --set topic=tea")
    out.say(f"  onward run graph.dot{simulated}")
    out.say("  python -m pytest                             # needs `pip install pytest`")
    out.say("  onward serve --app flow.py                   # without it, no flow is executed there")
    return FINE
