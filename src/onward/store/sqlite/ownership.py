"""Who this process is to others at the file, what it holds there, and which owners are alive."""

from __future__ import annotations

from collections.abc import Callable

from onward.store.holdings import Holdings
from onward.store.owner import owner_name
from onward.store.sqlite.file.presence import Presence, is_owner_alive, workers_of


class Ownership(Holdings):
    """This process as an owner. It announces itself beside the file when its name is first needed."""

    def __init__(self, path: str, now_us: Callable[[], int | None], lease_us: int) -> None:
        super().__init__(now_us, lease_us)
        self.directory = workers_of(path)
        self._presence: Presence | None = None

    @property
    def announced_owner(self) -> str:
        if self._presence is None:
            self._presence = Presence.announce(self.directory)
            self.owner = owner_name(self._presence.worker)
        return self.owner

    def is_alive(self, owner: str, is_expired: bool) -> bool:
        """Whether an owner's process is alive; if that cannot be seen, whether its time is not over."""
        if owner == self.owner:
            return True
        return is_owner_alive(self.directory, owner, is_expired=is_expired)

    def close(self) -> None:
        """Leave. What is still held needs the file, which tells that its process is dead."""
        presence, self._presence = self._presence, None
        if presence is not None:
            is_named = self.runs or self.effects or self.is_registered
            presence.abandon() if is_named else presence.close()
