"""A real git repository for a test, and what is in it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

WHO = ("-c", "user.name=Pat", "-c", "user.email=pat@example.org")


@dataclass(frozen=True)
class Repository:
    """A repository with one commit."""

    path: Path

    @classmethod
    def make(cls, path: Path, **files: str) -> Repository:
        path.mkdir(parents=True)
        made = cls(path)
        made.git("init", "-q", "-b", "main")
        for name, text in (files or {"story": "once\n"}).items():
            (path / name).write_text(text)
        made.git("add", "-A")
        made.git("commit", "-q", "-m", "first")
        return made

    def git(self, *arguments: str, at: Path | str | None = None) -> str:
        home = {"PATH": os.environ["PATH"], "HOME": str(self.path), "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", *WHO, *arguments],
            cwd=at or self.path,
            env=home,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def read(self, name: str, commit: str) -> str:
        """A file as a commit has it."""
        return self.git("show", f"{commit}:{name}")

    @property
    def refs(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname)").split()

    @property
    def trees(self) -> list[str]:
        """The directories of its work trees."""
        lines = self.git("worktree", "list", "--porcelain").splitlines()
        return [line.removeprefix("worktree ") for line in lines if line.startswith("worktree ")]
