"""No path that a model can write leads a tool out of the workspace, or to what is Onward's."""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from onward.agents.tools.workspace import PathRefused, WorkspaceTree, parts_of
from tests.agents.tools.in_workspace import OUTSIDE, Bench

AT_FDCWD, RENAME_EXCHANGE = -100, 2
TOOLS = ("read", "write", "edit", "list", "search")
WRITERS = ("write", "edit")
ESCAPES = (
    "../outside.txt",
    "..",
    "../",
    "a/../../outside.txt",
    "a/../../../../../../../../etc/passwd",
    "./../outside.txt",
    "a//..//../outside.txt",
    "/etc/passwd",
    "//etc/passwd",
    "/../etc/passwd",
    "/",
    "~/.ssh/id_rsa",
    "~",
    "{root}/../outside.txt",
    "{root}-twin/outside.txt",
    "{root}/a/../../outside.txt",
    "{parent}/outside.txt",
    "link.txt",
    "links/outside.txt",
    "links",
    "a/up/outside.txt",
    "a/up",
    "chain/outside.txt",
    "loop",
    "loop/x",
    "dangling",
    "/proc/self/root/etc/passwd",
    "/dev/fd/0",
    "outside.txt\0",
    "\0",
    "a\nb",
    "x" * 300,
    "y/" * 3_000 + "z",
    "d/" * 70 + "z",
    "\ud800",
)
OWN = (
    ".onward",
    ".onward/onward.db",
    ".onward/runs/x/receipt.json",
    "./.onward/onward.db",
    "a/../.onward/onward.db",
    "{root}/.onward/onward.db",
    ".ONWARD/onward.db",
    ".Onward",
    ".on\u200cward/onward.db",
    "sub/.onward/x",
    "data/own.db",
    "data/own.db-wal",
    "data/runs",
    "data/runs/r/receipt.json",
    "data/twin.db",
)
NOT_WRITTEN = (
    ".git/config",
    ".git/hooks/pre-commit",
    ".git",
    ".GIT/config",
    ".g\u200bit/config",
    "sub/.git/hooks/post-checkout",
    "onward.toml",
    "ONWARD.toml",
    "sub/onward.toml",
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A workspace with traps around it and in it."""
    root = tmp_path / "room"
    for directory in ("a", ".onward/runs/x", "sub/.onward", "data/runs/r", ".git/hooks", "sub/.git/hooks"):
        (root / directory).mkdir(parents=True)
    (tmp_path / "room-twin").mkdir()
    for outside in ("outside.txt", "room-twin/outside.txt"):
        (tmp_path / outside).write_text(OUTSIDE)
    for own in (
        *(".onward/onward.db", ".onward/runs/x/receipt.json", "sub/.onward/x", "data/own.db"),
        *(
            "data/runs/r/receipt.json",
            ".git/config",
            ".git/hooks/pre-commit",
            "onward.toml",
            "sub/onward.toml",
        ),
        "sub/.git/hooks/post-checkout",
    ):
        (root / own).write_text(OUTSIDE)
    os.link(root / "data/own.db", root / "data/twin.db")
    (root / "link.txt").symlink_to("../outside.txt")
    (root / "links").symlink_to("..")
    (root / "a/up").symlink_to("../..")
    (root / "chain").symlink_to("links")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("../made-by-a-tool.txt")
    own_paths = tuple(str(root / "data" / name) for name in ("own.db", "own.db-wal", "runs"))
    found = Bench(root, own_paths)
    yield found
    found.close()


def contents(top: Path) -> dict[str, bytes | str]:
    """Every name below a directory, with what it holds."""
    found: dict[str, bytes | str] = {}
    for path in sorted(top.rglob("*")):
        name = str(path.relative_to(top))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


@pytest.mark.parametrize("tool", TOOLS)
async def test_no_path_leads_out_of_the_workspace(bench: Bench, tool: str) -> None:
    top = bench.root.parent
    before = contents(top)
    for written in ESCAPES:
        path = written.replace("{root}", str(bench.root)).replace("{parent}", str(top))
        answer = await bench.at(tool, path)
        assert answer.is_error, (path, answer.text)
        assert OUTSIDE not in answer.text
        assert "outside.txt (" not in answer.text, "not even its name and size"
    assert contents(top) == before


@pytest.mark.parametrize("tool", TOOLS)
async def test_what_is_onwards_is_neither_read_nor_written(bench: Bench, tool: str) -> None:
    before = contents(bench.root)
    for written in OWN:
        path = written.replace("{root}", str(bench.root))
        answer = await bench.at(tool, path)
        assert answer.is_error, (path, answer.text)
        assert OUTSIDE not in answer.text
    assert contents(bench.root) == before


@pytest.mark.parametrize("tool", WRITERS)
async def test_what_decides_about_later_commands_is_not_written(bench: Bench, tool: str) -> None:
    before = contents(bench.root)
    for path in NOT_WRITTEN:
        answer = await bench.at(tool, path)
        assert answer.is_error, (path, answer.text)
    assert contents(bench.root) == before


async def test_what_is_onwards_is_not_even_listed_or_found(bench: Bench) -> None:
    for listed in (
        await bench.use("list"),
        await bench.use("list", path="data"),
        await bench.use("list", pattern="*"),
        await bench.use("search", pattern="secret of"),
    ):
        assert ".onward" not in listed.text
        for name in ("own.db", "twin.db", "data/runs"):
            assert name not in listed.text


async def test_a_link_is_listed_as_one_and_not_followed(bench: Bench) -> None:
    shown = (await bench.use("list", pattern="*")).text
    assert "links (a link, not followed)" in shown
    assert "links/" not in shown
    assert "outside.txt" not in shown


async def test_a_path_from_the_root_is_understood_if_it_is_inside(bench: Bench) -> None:
    (bench.root / "a/x.txt").write_text("hello")
    assert (await bench.use("read", path=str(bench.root / "a/x.txt"))).text == "hello"
    assert (await bench.use("read", path="a/../a/./x.txt")).text == "hello"
    inside = bench.root.parent / "by-link"
    inside.symlink_to(bench.root)
    other = Bench(inside)
    assert (await other.use("read", path=f"{inside}/a/x.txt")).text == "hello"
    assert (await other.use("read", path=f"{bench.root}/a/x.txt")).text == "hello"
    other.close()


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_pipe_makes_no_tool_wait(bench: Bench, tool: str) -> None:
    os.mkfifo(bench.root / "pipe")
    answer = await bench.at(tool, "pipe")
    assert answer.is_error
    assert "not a plain file" in answer.text or "not a directory" in answer.text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
@pytest.mark.parametrize("tool", TOOLS)
async def test_a_device_is_not_opened(bench: Bench, tool: str) -> None:
    try:
        os.mknod(bench.root / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this machine lets not even root make devices")
    assert (await bench.at(tool, "zero")).is_error


@pytest.mark.parametrize("tool", ["read", "write", "edit"])
async def test_a_directory_is_not_a_file(bench: Bench, tool: str) -> None:
    answer = await bench.at(tool, "a")
    assert answer.is_error
    assert "a is a directory; use list." in answer.text


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two names at once")
@pytest.mark.parametrize("tool", ["read", "write", "edit"])
async def test_a_directory_that_is_exchanged_for_a_link_leads_nowhere_else(bench: Bench, tool: str) -> None:
    """Another thread exchanges a directory and a link as fast as it can; a tool is always on its way."""
    top, root = bench.root.parent, bench.root
    (top / "elsewhere").mkdir()
    (top / "elsewhere/x.txt").write_text(OUTSIDE)
    (root / "door").mkdir()
    (root / "door/x.txt").write_text("inside")
    (root / "fake").symlink_to(top / "elsewhere")
    is_over, libc = threading.Event(), ctypes.CDLL(None, use_errno=True)

    def exchange() -> None:
        names = os.fsencode(root / "door"), os.fsencode(root / "fake")
        while not is_over.is_set():
            assert libc.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        seen: list[bool] = []
        while len(seen) < 200 or len(set(seen)) < 2:
            answer = await bench.at(tool, "door/x.txt")
            assert OUTSIDE not in answer.text
            seen.append(answer.is_error)
    finally:
        is_over.set()
        thread.join()
    assert (top / "elsewhere/x.txt").read_text() == OUTSIDE
    assert [path.name for path in (top / "elsewhere").iterdir()] == ["x.txt"]


async def test_a_file_that_became_a_link_is_not_written_through(bench: Bench) -> None:
    tree = WorkspaceTree(str(bench.root))
    (bench.root / "a/x.txt").symlink_to("../../outside.txt")
    with pytest.raises(PathRefused, match="not a plain file"):
        tree.replace(("a", "x.txt"), b"mine", mark="m")
    assert list(bench.root.glob("a/.onward-*")) == []
    assert (bench.root.parent / "outside.txt").read_text() == OUTSIDE


@pytest.mark.parametrize(
    "path", ["a\\..\\..\\b", "%2e%2e/x", "..%2fx", "...", "a b", "é", "-rf", "$HOME", "a\u00a0b"]
)
def test_what_only_looks_odd_is_a_name(path: str) -> None:
    assert parts_of(path, "/room") == tuple(path.split("/"))


@pytest.mark.parametrize("root", ["/", "/room", "/room/"])
def test_the_workspace_may_be_any_directory(root: str) -> None:
    assert parts_of(f"{root.rstrip('/')}/a/b", root) == ("a", "b")
    with pytest.raises(PathRefused, match="out of the workspace"):
        parts_of("a/../..", root)
