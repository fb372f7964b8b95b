"""Which kind of file system a directory is on, and whether its locks can be believed."""

from __future__ import annotations

import os
import sys

from onward.errors import StoreUnavailable

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
            f"{directory} is on a network file system ({kind}), whose locks cannot tell who is alive; "
            "put the database on a local disk, or use PostgreSQL."
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
