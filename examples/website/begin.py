"""`python begin.py DIRECTORY`: copy the website builder there, and begin an empty site for it to work on.

The site is a git repository of its own, so that no run touches the one that this file is in.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PIPELINE = "website.dot"
COPIED = ("builder.py", "site_check.py", "onward.toml", "script.json")
AUTHOR = ("-c", "user.name=Website builder", "-c", "user.email=builder@localhost")


def begin(directory: Path) -> None:
    """A new directory with the builder, and a site in it that has one file and one commit.

    The pipeline names the site with its whole path: one that is registered has no file to be relative to.
    """
    site = directory.absolute() / "site"
    site.mkdir(parents=True)
    written = str(site).replace("\\", r"\\").replace('"', r"\"")
    source = (
        (HERE / PIPELINE).read_text(encoding="utf-8").replace('workspace="site"', f'workspace="{written}"')
    )
    (directory / PIPELINE).write_text(source, encoding="utf-8")
    for name in COPIED:
        shutil.copy(HERE / name, directory)
    (site / "README.md").write_text("# A site that the website builder works on\n", encoding="utf-8")
    for words in (
        ("init", "--quiet", "--initial-branch=main"),
        ("add", "--all"),
        (*AUTHOR, "commit", "--quiet", "--message", "Begin"),
    ):
        subprocess.run(["git", "-C", str(site), *words], check=True)


if __name__ == "__main__":
    if len(sys.argv) != 2 or Path(sys.argv[1]).exists():
        sys.exit("write `python begin.py DIRECTORY`, with a directory that does not exist yet.")
    begin(Path(sys.argv[1]))
    print(f"{sys.argv[1]} has the builder, and in site/ an empty site.")
