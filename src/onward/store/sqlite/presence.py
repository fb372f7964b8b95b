"""Who is alive on one machine, told by a lock that the kernel frees the moment a process dies.

Each process holds an exclusive lock on a file of its own, and writes the file's token into the runs it
owns. Whoever meets the token asks the kernel whether the lock is still held. The pid is never asked:
it is reused, and a stopped process has one too, as it must: stopped is alive.

- Locks can only be believed on a local disk: network file systems are refused.
- The lock belongs to the open file, and a fork shares open files. A forked child therefore closes its
  copy at once, else it would keep its dead parent alive; exec closes it by itself. Only a fork made by
  foreign C code without exec escapes both.
- Names are random and never used again. A probe never creates the file, opens it read-only, compares
  inode and content, and asks (`F_OFD_GETLK`) rather than trying to lock, so it can disturb no process.
- A process that was killed is *alive* until the last of its commands has been killed too: until then no
  other process may run the same step.
- *Unknown* is the answer whenever the file is missing, replaced or unreadable, or the token comes from
  another boot. Then a time limit decides.
- `close` removes the file, so whoever still held a run would become unknown. Hence the rule: first
  release the runs, then close. A process that could not release them just exits, or calls `abandon`:
  its file stays, the lock is free, and the next probe says *dead* at once.

Files of dead processes are removed when they are not needed any more. A file is signed after it was locked,
and its lock is let go of only by the end of its process: one that is signed and not locked is certainly a
dead process's. Names are never used again, so no process can come to it between the look and the removal.
One without a signature may belong to a process that is just starting, and stays. As long as a run or an
unfinished effect names the process, the file says that it is dead; without it only a time limit would. So
the database is asked after the look: by then all that a dead process wrote is there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import struct
import sys
import threading
from enum import StrEnum

import apsw

from onward.clock import SystemIds
from onward.errors import StoreError, StoreFull, StoreIO, StoreReadOnly, StoreUnavailable
from onward.host import boot_id as this_boot
from onward.host import has_orphans, host_identity
from onward.store.owner import owner_proof
from onward.store.sqlite.statements import QUERIES

MOUNTINFO = "/proc/self/mountinfo"

# Locks here are kept by another machine, or by nobody: a server that restarts forgets them, and the
# lock of a process that died with its machine may stay for ever.
NETWORK = frozenset(
    """
    9p afs beegfs ceph cifs coda davfs fhgfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs pvfs2
    smb3 smbfs fuse.afp fuse.ceph fuse.cephfs fuse.curlftpfs fuse.davfs fuse.davfs2 fuse.gcsfuse
    fuse.glusterfs fuse.goofys fuse.juicefs fuse.rclone fuse.s3fs fuse.seaweedfs fuse.smbnetfs fuse.sshfs
    """.split()  # noqa: SIM905 - a table of words is easier to read and to extend than a column of quotes
)


def refuse_network(directory: str, *, mountinfo: str = MOUNTINFO) -> None:
    """Raise `StoreUnavailable` when `directory` is on a network file system.

    Only Linux tells; elsewhere nothing is refused.
    """
    if sys.platform != "linux":
        return
    kind = filesystem_of(directory, mountinfo=mountinfo)
    if kind in NETWORK:
        raise StoreUnavailable(
            f"{directory} is on a network file system ({kind}), whose locks cannot show which processes are "
            "alive; put the database on a local disk, or use PostgreSQL."
        )


def filesystem_of(directory: str, *, mountinfo: str = MOUNTINFO) -> str:
    """The type of file system that holds `directory`, as the mount table spells it."""
    try:
        wanted = _mount_id(directory)
        with open(mountinfo, "rb") as table:
            found = next((line for line in table if line.startswith(wanted + b" ")), b"")
    except OSError as error:
        raise StoreUnavailable(
            f"cannot tell which file system holds {directory}: {error}; onward needs /proc to be mounted."
        ) from error
    # "36 35 98:0 / /mnt rw,noatime master:1 - ext4 /dev/sda1 rw": the type follows the lone dash.
    kind = found.partition(b" - ")[2].split(b" ", 1)[0]
    return os.fsdecode(kind) or "unknown"


def _mount_id(directory: str) -> bytes:
    # The kernel names the mount of an open directory, so no path has to be compared with mount points.
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with open(f"/proc/self/fdinfo/{fd}", "rb") as info:
            fields = dict(line.split(b":", 1) for line in info if b":" in line)
    finally:
        os.close(fd)
    return fields[b"mnt_id"].strip()


WORKER = re.compile(
    r"(?P<nonce>[0-9a-z]{8,64}):(?P<inode>[0-9]{1,20}):(?P<boot_id>[0-9A-Za-z._-]{1,255})"
    r"(:(?P<pid>[0-9]{1,10})-(?P<started>[0-9]{1,20}))?"
)

FLOCK = struct.Struct("hhqqi4x")  # Linux: l_type, l_whence, l_start, l_len, l_pid; all zero but the type

CAUSES: dict[int | None, type[StoreError]] = {
    errno.ENOSPC: StoreFull,
    errno.EDQUOT: StoreFull,
    errno.EROFS: StoreReadOnly,
    errno.EACCES: StoreReadOnly,
    errno.EPERM: StoreReadOnly,
}
# A file that is absent, a link, a device, or somebody else's says nothing about the worker.
TELLS_NOTHING = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO}


class Alive(StrEnum):
    """What the kernel knows about a worker."""

    alive = "alive"
    dead = "dead"
    unknown = "unknown"


class Presence:
    """This process, visibly alive to every other one that uses the same directory."""

    worker: str

    def __init__(self, path: str, fd: int, worker: str) -> None:
        self.worker, self._path, self._fd = worker, path, fd

    @classmethod
    def announce(cls, directory: str, *, mountinfo: str = MOUNTINFO) -> Presence:
        """Be alive in `directory` until closed or dead. Network file systems are refused."""
        nonce = SystemIds().unique()
        path = os.path.join(directory, f"{nonce}.lock")
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            refuse_network(directory, mountinfo=mountinfo)
            with _no_fork:
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
                presence = cls(path, fd, _occupy(path, fd, nonce))
                _announced.add(presence)
            return presence
        except OSError as error:
            raise _store_error(f"cannot register this process in {directory}", error) from error

    def close(self) -> None:
        """Stop being alive and leave no file. Release the runs first: afterwards they are *unknown*."""
        with _no_fork:
            if self._fd >= 0:
                # Removed while still locked: no probe may see the file without its lock and say "dead".
                with contextlib.suppress(FileNotFoundError):  # somebody tidied up; the lock was ours
                    os.unlink(self._path)
                self.abandon()

    def abandon(self) -> None:
        """Be dead to everybody from now on, as if the process had ended: its runs can be taken over."""
        with _no_fork:
            _announced.discard(self)
            self._leave_to_parent()

    def _leave_to_parent(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def probe(directory: str, worker: str, *, boot_id: str | None = None) -> Alive:
    """Whether the process that announced itself as `worker` lives. Changes nothing on disk.

    A token that this program cannot read is unknown as well. `boot_id` is this machine's unless given.
    """
    token = WORKER.fullmatch(worker)
    if token is None or token["boot_id"] != (boot_id or _boot()):
        return Alive.unknown
    path = os.path.join(directory, f"{token['nonce']}.lock")
    try:
        # O_NONBLOCK: a pipe planted under this name must not hold us up.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in TELLS_NOTHING:
            return Alive.unknown
        raise _store_error(f"cannot read {path}", error) from error
    try:
        if not _is_file_of(fd, token["nonce"], int(token["inode"])):
            return Alive.unknown
        return Alive.alive if is_held(fd) or _has_orphans(token) else Alive.dead
    except OSError as error:
        raise StoreIO(f"cannot query the lock of {path}: {error}.") from error
    finally:
        os.close(fd)


def workers_of(path: str) -> str:
    """The directory in which the processes at a database are visibly alive."""
    return f"{path}-workers"


def is_owner_alive(directory: str, owner: str, *, is_expired: bool) -> bool:
    """Whether the owner of a run lives; one that cannot be seen from here lives until its time is over."""
    match probe(directory, owner_proof(owner)):
        case Alive.alive:
            return True
        case Alive.dead:
            return False
        case Alive.unknown:
            return not is_expired


def _has_orphans(token: re.Match[str]) -> bool:
    return token["pid"] is not None and has_orphans(int(token["pid"]), int(token["started"]))


def _occupy(path: str, fd: int, nonce: str) -> str:
    """Lock and sign the new file; returns its token. On failure nothing is left behind."""
    try:
        hold(fd)
        os.write(fd, nonce.encode("ascii"))
        me = host_identity()
        worker = f"{nonce}:{os.fstat(fd).st_ino}:{_boot()}:{me.pid}-{me.started}"
        # A file system may accept a lock and forget it; better to learn that now than in a take-over.
        if probe(os.path.dirname(path), worker) is not Alive.alive:
            raise StoreUnavailable(
                f"the file system of {path} does not support locks; put the database on a local disk."
            )
        return worker
    except BaseException:
        os.unlink(path)
        os.close(fd)
        raise


def _is_file_of(fd: int, nonce: str, inode: int) -> bool:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_ino != inode:
        return False
    return os.pread(fd, len(nonce) + 1, 0) == nonce.encode("ascii")


def ofd_hold(fd: int) -> None:
    """Lock the whole file for this open file alone; OSError when somebody has it."""
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))


def ofd_is_held(fd: int) -> bool:
    """Whether another open file has the lock; asks, and takes nothing."""
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0))
    return bool(FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def flock_hold(fd: int) -> None:
    """The same on systems without open-file locks that can be queried."""
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def flock_is_held(fd: int) -> bool:
    """Whether another open file has the lock, by trying for a share of it.

    Trying cannot get in the holder's way: it locks its file before anybody learns the name, and
    only once. Two probes do not see each other, because shares agree.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


hold, is_held = (ofd_hold, ofd_is_held) if sys.platform == "linux" else (flock_hold, flock_is_held)


def _boot() -> str:
    # Without boot ids the machine's name must do: there, too, a free lock proves that the holder is gone.
    return this_boot() or "host-" + re.sub(r"[^0-9A-Za-z._-]", "_", os.uname().nodename)[:200]


def _store_error(what: str, error: OSError) -> StoreError:
    cause = CAUSES.get(error.errno, StoreUnavailable)
    return cause(
        f"{what}: {error.strerror}; the directory must be on a local disk and writable by this user."
    )


# Held while a descriptor is open but not listed, so that no thread forks just then.
_no_fork = threading.RLock()
_announced: set[Presence] = set()


def _leave_all_to_parent() -> None:
    for presence in _announced:
        presence._leave_to_parent()
    _announced.clear()
    _no_fork.release()


# Registered once: such hooks cannot be withdrawn.
os.register_at_fork(
    before=_no_fork.acquire, after_in_parent=_no_fork.release, after_in_child=_leave_all_to_parent
)


LOCK_ENDING = ".lock"
LOOKED_AT_MAX = 1_000
NONCE_BYTES_MAX = 64


def dead_files(directory: str) -> list[str]:
    """The names of files whose processes are certainly dead."""
    try:
        names = [name for name in os.listdir(directory) if name.endswith(LOCK_ENDING)]
    except OSError:
        return []  # nobody has announced itself here yet, or it cannot be read: then nothing is tidied
    return [name for name in names[:LOOKED_AT_MAX] if _is_dead(os.path.join(directory, name))]


def _is_dead(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        nonce = os.path.basename(path).removesuffix(LOCK_ENDING).encode()
        is_signed = os.pread(fd, NONCE_BYTES_MAX + 1, 0) == nonce
        return stat.S_ISREG(os.fstat(fd).st_mode) and is_signed and not is_held(fd)
    except OSError:
        return False
    finally:
        os.close(fd)


def remove_unneeded(db: apsw.Connection, directory: str, names: list[str]) -> None:
    """Remove those of dead processes that nothing in the database names."""
    needed = {owner_proof(owner).partition(":")[0] for (owner,) in db.execute(QUERIES["owner_named"])}
    for name in names:
        if name.removesuffix(LOCK_ENDING) not in needed:
            with contextlib.suppress(OSError):  # another process was faster, or may not: the next one tries
                os.unlink(os.path.join(directory, name))
