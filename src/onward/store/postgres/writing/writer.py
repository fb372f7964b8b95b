"""Writing runs: a group of writes is one to three statements in one transaction, and a refusal a result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from onward.store.limits.ledger import note_warnings
from onward.store.member import Member
from onward.store.port.money.limits import Warned
from onward.store.postgres.chats.projecting import message_calls
from onward.store.postgres.limits.charging import is_charged, ledger_calls, lock
from onward.store.postgres.limits.one_trip import Charge, OneTrip
from onward.store.postgres.link.binary import texts
from onward.store.postgres.link.failure import AGAIN, ServerError
from onward.store.postgres.link.wire import Wire
from onward.store.postgres.statements import COMMIT, QUERIES, ROLLBACK, Call, call
from onward.store.postgres.writing.calls import (
    ALONE_EVENTS_MAX,
    ARRAYS,
    CONTENT_MISSING,
    SUBSCRIBED,
    advance,
    advance_one,
    blob_call,
    blobs_of,
    calls_beside,
    columns_of,
    events_of,
    relying_on,
)
from onward.store.postgres.writing.refusing import is_fork, is_orphan, refusal_of, why_refused

KNOWN_MAX = 10_000


class Writer(msgspec.Struct):
    """Writes runs. `known` is content that was stored once: asking for it is cheaper than sending it."""

    now_us: Callable[[], int | None]
    lease_us: int
    known: set[str] = msgspec.field(default_factory=set)
    is_heard: bool = False
    """Whether somebody is known to have subscribed; if not, writes make sure that nobody has."""
    scopes: set[str] = msgspec.field(default_factory=set)
    """Scopes that have rows."""
    one_trip: OneTrip = msgspec.field(default_factory=OneTrip)
    warnings: dict[str, list[Warned]] = msgspec.field(default_factory=dict)
    """Limits that are nearly spent, by the run whose calls spent them, until they are told."""

    async def commit(self, wire: Wire, group: Sequence[Member]) -> Sequence[Exception | None]:
        """Write whatever is not refused; answers None or the refusal for each."""
        if len(group) == 1:
            return await self.write(wire, group)
        answers: list[Exception | None] = []
        for wave in _waves(group):
            answers += await self.write(wire, wave)
        return answers

    async def write(self, wire: Wire, members: Sequence[Member], *then: Call) -> Sequence[Exception | None]:
        """Write members of different runs, and `then` do something more, in one trip."""
        if not any(map(is_charged, members)):
            return await self._write(wire, members, *then)
        is_ours = not wire.is_in_transaction
        charge = self.one_trip.charge(members) if is_ours and not then else None
        if charge is not None:
            try:
                return await self._write(wire, members, charge=charge)
            except ServerError as error:
                if not self.one_trip.needs_look(charge, error):
                    raise
        locked = await lock(wire, members, self.scopes)
        refused = locked.charge(members)
        sent = [member for member in members if member.write.run_id not in refused]
        answers: dict[str, Exception | None] = {**refused}
        if sent:
            written = await self._write(wire, sent, *ledger_calls(locked.ledger), *(then or (COMMIT,)))
            answers |= dict(zip((member.write.run_id for member in sent), written, strict=True))
        if is_ours and wire.is_in_transaction:
            await wire.run(ROLLBACK)  # all of it was refused
        else:
            note_warnings(self.warnings, locked.ledger)
            self.one_trip.note(locked.ledger)
        return [answers[member.write.run_id] for member in members]

    async def _write(
        self, wire: Wire, members: Sequence[Member], *then: Call, charge: Charge | None = None
    ) -> Sequence[Exception | None]:
        if len(members) == 1 and not then and _is_in_passing(members[0], charge):
            (found,) = await wire.run(advance_one(members[0], charge))
            if charge is not None and found:  # a refused write has charged nothing
                self.one_trip.charged(charge)
            return [None if found else await why_refused(wire, members[0], ())]
        orphans = [
            member.write.run_id
            for member in members
            if is_fork(member) and await is_orphan(wire, member.write)
        ]
        sent = [member for member in members if member.write.run_id not in orphans] if orphans else members
        statements, blobs = self._statements(sent), blobs_of(sent)
        held = sorted(self.known & blobs.keys())
        charged = [charge.behind(sent[0].write)] if charge is not None and sent else []
        content = [blob_call(name, *blobs[name]) for name in sorted(blobs.keys() - self.known)]
        content += [call("blob_hold", hashes=texts(held))] if held else []
        for member in sent:
            content += relying_on(member.write.relied_on(), member.write.at_us)
        try:
            answers = await wire.run(
                *statements,
                *message_calls([member.write for member in sent if member.write.calls]),
                *charged,
                *content,
                *calls_beside(sent, self.now_us(), is_heard=self.is_heard),
                *then,
            )
        except ServerError as error:
            if error.sqlstate == CONTENT_MISSING and held:
                self.known.clear()  # it was deleted: the next try sends it
                raise ServerError(AGAIN, str(error)) from None
            if error.sqlstate == SUBSCRIBED:
                self.note_subscriber()
                raise ServerError(AGAIN, str(error)) from None
            refusal = await refusal_of(wire, members[0].write, error) if len(members) == 1 else None
            if refusal is None:
                raise
            return [refusal]
        self._note(blobs.keys())
        moved = {columns[0] for found in answers[: len(statements)] for columns in found}
        if charge is not None and members[0].write.run_id in moved:
            self.one_trip.charged(charge)
        return [
            None if member.write.run_id in moved else await why_refused(wire, member, orphans)
            for member in members
        ]

    def _statements(self, members: Sequence[Member]) -> Sequence[Call]:
        made = [member for member in members if member.held is None]
        changed = [member for member in members if member.held is not None and member.write.row is not None]
        advanced = [member for member in members if member.write.row is None]
        # Whichever comes first locks for both; what is alone needs no order.
        locked = [member.write.run_id for member in (*changed, *advanced)]
        locked = locked if len(locked) > 1 else []
        calls: list[Call] = []
        if changed:
            calls.append(self._change("run_update", changed, locked))
        if advanced:
            is_short = len(advanced) == 1 and len(advanced[0].write.records) <= ALONE_EVENTS_MAX
            locked = [] if changed else locked
            calls.append(advance_one(advanced[0]) if is_short else advance(advanced, locked))
        if made:
            calls.append(self._change("run_insert", made))
        return calls

    def _change(self, name: str, members: Sequence[Member], locked: Sequence[str] = ()) -> Call:
        table = [columns_of(member) for member in members]
        others = {**events_of(members), "now_us": self.now_us(), "lease_us": self.lease_us}
        if len(table) == 1 and not locked:
            return call(f"{name}_alone", **table[0], **others)
        wanted = [parameter for parameter in QUERIES[name].parameters if parameter in table[0]]
        arrays = {column: ARRAYS.get(column, texts)([row[column] for row in table]) for column in wanted}
        return call(name, **arrays, **others, locked=texts(locked))

    def note_subscriber(self) -> None:
        """Make notifications from now on."""
        self.is_heard = True

    def _note(self, names: Collection[str]) -> None:
        if len(self.known) >= KNOWN_MAX:
            self.known.clear()
        self.known.update(names)


def _waves(group: Sequence[Member]) -> Iterator[Sequence[Member]]:
    """Consecutive parts in which no run comes twice: a statement sees each run as it was before it."""
    wave: dict[str, Member] = {}
    for member in group:
        if member.write.run_id in wave:
            yield list(wave.values())
            wave = {}
        wave[member.write.run_id] = member
    yield list(wave.values())


def _is_in_passing(member: Member, charge: Charge | None) -> bool:
    """Whether this is a step on the way, with nothing to store beside its events and this charge."""
    write = member.write
    is_plain = write.row is None and write.snapshot is None and not write.blobs and not write.gates
    is_plain = is_plain and write.notifications is None
    is_plain = is_plain and (not write.calls or (charge is not None and not write.calls[0].is_streamed))
    return is_plain and not write.relied_on() and len(write.records) <= ALONE_EVENTS_MAX
