"""Who may ask a server for something, and who asked for what.

A principal is a token, a session that was opened with one, or a code that opens one session. The store keeps
the hash of its secret and never the secret. A session or code ends with its token: what is read of it shows
the earlier end of the two.

The audit has a row for every change that was asked for, written before the change is made and completed
after it. A row without a code is an attempt whose process did not live to see what came of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec
from blake3 import blake3

from onward.errors import InvalidInput, Refused
from onward.model.ids import PRINCIPAL

PrincipalKind = Literal["token", "session", "code"]
TOKENS: tuple[PrincipalKind, ...] = ("token",)
SECRET_BYTES = 32
PRINCIPALS_MAX = 1_000
USED_EVERY_US = 60_000_000
"""How often the use of a principal is written, at most."""


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """A credential: what it may do (`roles`), and until when.

    `secret_hash` is the BLAKE3 of its secret. `token` is the token that a session or a code belongs to. A
    code that was used has opened its session. Names and ids are restricted to a few characters, so that no
    text that is put together from them can mean two callers.
    """

    id: str
    kind: PrincipalKind
    name: str
    secret_hash: bytes
    roles: tuple[str, ...]
    made_at_us: int
    expires_at_us: int | None = None
    used_at_us: int | None = None
    revoked_at_us: int | None = None
    token: str | None = None

    def __post_init__(self) -> None:
        for what, text in (("id", self.id), ("name", self.name)):
            if not PRINCIPAL.fullmatch(text):
                raise InvalidInput(
                    f"{text!r} cannot be the {what} of a {self.kind}; "
                    "use 1 to 64 of the characters a-z, 0-9, ':' and '-'."
                )
        if len(self.secret_hash) != SECRET_BYTES:
            raise InvalidInput(f"the secret of a {self.kind} is stored as a hash of {SECRET_BYTES} bytes.")
        if not all(role.isalpha() for role in self.roles):
            raise InvalidInput("a role must be a single word.")
        if self.kind == "token" and self.token is not None:
            raise InvalidInput("a token belongs to no other token.")

    def is_valid(self, now_us: int) -> bool:
        """Whether it opens anything at this time. A code that was used does not."""
        is_in_time = self.expires_at_us is None or self.expires_at_us > now_us
        is_spent = self.kind == "code" and self.used_at_us is not None
        return is_in_time and self.revoked_at_us is None and not is_spent


def secret_hash(secret: str) -> bytes:
    """What is stored of a secret. A secret has 256 random bits, so a slow hash would add nothing."""
    return blake3(secret.encode()).digest()


def token_exists(name: str) -> Refused:
    """Another token has this name."""
    return Refused(
        "token_exists",
        f"there is another token named {name!r}; choose another name, or revoke that one first.",
        details={"name": name},
    )


class Principals(Protocol):
    """The credentials of a database. Times are those of the caller's clock."""

    async def put(self, principal: Principal) -> None:
        """Store a new one. Refused as `token_exists` if its id is taken, or its name by a token in force.

        The same one again is a success, and changes nothing. A token is in force until it is revoked.
        """
        ...

    async def find(self, id: str) -> Principal | None:
        """The principal with this id, whether it is valid or not."""
        ...

    async def read(
        self, kinds: Sequence[PrincipalKind] = TOKENS, *, limit: int = PRINCIPALS_MAX
    ) -> Sequence[Principal]:
        """Principals of these kinds, newest first."""
        ...

    async def revoke(self, id: str, *, at_us: int) -> bool:
        """End it for good, and all sessions and codes of a token with it; False if it is not in force."""
        ...

    async def used(self, id: str, *, at_us: int) -> None:
        """Note that a token or session was used; written if the last note is older than USED_EVERY_US."""
        ...

    async def redeem(self, code_id: str, *, now_us: int) -> Principal | None:
        """Use up a code: of all callers, in all processes, exactly one gets it; None for all others.

        None also if it is no code, has expired or was revoked, or if its token is not valid any more. If the
        reply is lost, the code is used up.
        """
        ...

    async def tidy(self, *, before_us: int, limit: int) -> int:
        """Remove sessions and codes that ended at this time or before, at most so many; returns how many.

        Tokens stay. Several processes may do it at once.
        """
        ...


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """A change that somebody asked a server for.

    `by` is what the run's log calls them (`token:<name>`), `principal` the id of the credential,
    `on_behalf_of` what the sender said about a person, which nobody checked. `code` is the HTTP status of the
    reply, None until there is one. `n` is given by the store.
    """

    n: int = 0
    at_us: int
    by: str
    principal: str
    address: str
    operation: str
    subject: str
    key: str | None = None
    on_behalf_of: str | None = None
    code: int | None = None
    done_at_us: int | None = None


class Audit(Protocol):
    """The changes that were asked for, in their order."""

    async def begin(self, row: AuditRow) -> int:
        """Write down what is asked for, before it is done; returns the number of the row.

        If the reply is lost and it is sent again, there may be a second row.
        """
        ...

    async def finish(self, n: int, *, code: int, at_us: int) -> None:
        """Complete a row; the first completion stays."""
        ...

    async def read(self, *, before: int | None = None, limit: int) -> Sequence[AuditRow]:
        """The rows before this number, newest first."""
        ...

    async def tidy(self, *, before_us: int, limit: int) -> int:
        """Remove rows of this time or before, of the `limit` oldest; returns how many. No number comes again.

        Several processes may do it at once.
        """
        ...
