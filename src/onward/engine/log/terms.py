"""The terms of a request: its key, under which it counts once however often it is sent, and its head."""

from __future__ import annotations

import msgspec

from onward.errors import Refused
from onward.store.codec import content_hash
from onward.store.port.log import KEPT_APART, StoredEvent


class RequestTerms(msgspec.Struct, frozen=True):
    """How a request is made. The same key again gets the first answer.

    `body` is the request under the key. Its hash is stored with the events that the request wrote, so that
    the key cannot be used for something else; a request that wrote nothing has not used its key. `if_head` is
    the last event that the caller has seen.
    """

    key: str | None = None
    body: bytes | None = None
    if_head: int | None = None

    @property
    def content(self) -> dict[str, bytes]:
        """What is stored of the request: a hash of its body, which may be long and is stored already."""
        if self.key is None or self.body is None:
            return {}
        digest = content_hash(self.body).encode()
        return {content_hash(digest): digest}

    @property
    def refs(self) -> tuple[str, ...]:
        """What an event of the request refers to; it is stored for the event and not read with it."""
        return tuple(f"{KEPT_APART}{name}" for name in self.content)

    def check_head(self, run_id: str, head: int) -> None:
        """Refuse the request if the run has moved on since the head that it names."""
        if self.if_head is not None and self.if_head != head:
            raise Refused(
                "stale_head",
                f"run {run_id} has moved on: the request was made for event {self.if_head}, and its log ends "
                f"at event {head}; look at the run again, then decide.",
                details={"run": run_id, "if_head": self.if_head, "head": head},
            )

    def is_of(self, event: StoredEvent) -> bool:
        """Whether the event was written under this key, for the same body."""
        return bool(self.refs) and set(self.refs) <= set(event.refs)

    def check_same(self, first: StoredEvent) -> None:
        """Refuse the key if `first`, an event that was written under it, has another body."""
        if self.refs and not self.is_of(first):
            raise Refused(
                "key_reused",
                f"the key {self.key!r} was used for another request to run {first.run_id}; "
                "send that request unchanged, or choose a new key.",
                details={"run": first.run_id, "key": self.key},
            )


NO_TERMS = RequestTerms()
