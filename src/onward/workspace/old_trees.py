"""Work trees of runs that are about to be deleted: does one hold work that is nowhere else?"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

import msgspec

from onward.errors import WorkspaceFailed
from onward.model.events import branch_name
from onward.workspace.git import Git


class GitOldTrees(msgspec.Struct, frozen=True):
    """Checks work trees of real repositories. Ignored files do not count as work."""

    environment: Mapping[str, str]

    def work_in(self, run_id: str, directory: str) -> str:
        match _mode(os.path.join(directory, ".git")):
            case None:
                return ""
            case mode if not stat.S_ISREG(mode):
                return "is a separate repository"
        git = Git(os.path.realpath(directory), self.environment)
        own = (f"refs/heads/{branch_name(run_id)}", f"refs/onward/{run_id}/")
        try:
            if git("status", "--porcelain", "--untracked-files=normal", "--ignore-submodules=none"):
                return "has uncommitted changes"
            holding = git("for-each-ref", "--format=%(refname)", "--contains", "HEAD").splitlines()
        except WorkspaceFailed as error:
            return f"cannot be checked ({str(error).rstrip('.')})"
        if any(ref != own[0] and not ref.startswith(own[1]) for ref in holding):
            return ""
        return "has commits that are not merged"

    def remove(self, directory: str) -> None:
        if _mode(os.path.join(directory, ".git")) is None:
            return
        common = Git(os.path.realpath(directory), self.environment)(
            "rev-parse", "--path-format=absolute", "--git-common-dir"
        )
        Git(common, self.environment)("worktree", "remove", "--force", "--force", "--", directory)


def _mode(path: str) -> int | None:
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
