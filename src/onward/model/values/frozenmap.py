"""A mapping that never changes and whose successors share what they have in common.

Folding a log makes a new state for every event. Copying a context or a visit table each time would make
the cost of a step grow with the size of the state; here a change costs a small overlay, and the
overlay is merged into its base every `_OVERLAY_MAX` changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

V = TypeVar("V", covariant=True)
T = TypeVar("T")
_OVERLAY_MAX = 32
_ABSENT = object()


class FrozenMap(Mapping[str, V]):
    """An immutable map from strings; `with_` and `with_all` give the successor."""

    __slots__ = ("_base", "_overlay")
    _base: dict[str, V]
    _overlay: dict[str, V]

    def __init__(self, items: Mapping[str, V] | None = None) -> None:
        self._base = dict(items) if items else {}
        self._overlay = {}

    def with_(self: FrozenMap[T], key: str, value: T) -> FrozenMap[T]:
        """The map in which `key` means `value`."""
        made: FrozenMap[T] = _new(FrozenMap)
        made._base, made._overlay = self._base, {**self._overlay, key: value}
        if len(made._overlay) > _OVERLAY_MAX:
            made._merge()
        return made

    def with_all(self: FrozenMap[T], changes: Mapping[str, T]) -> FrozenMap[T]:
        """The map with all `changes` made."""
        if not changes:
            return self
        made: FrozenMap[T] = _new(FrozenMap)
        made._base, made._overlay = self._base, {**self._overlay, **changes}
        if len(made._overlay) > _OVERLAY_MAX:
            made._merge()
        return made

    def _merge(self) -> None:
        self._base, self._overlay = {**self._base, **self._overlay}, {}

    def without(self, key: str) -> FrozenMap[V]:
        """The map in which `key` means nothing."""
        if key not in self:
            return self
        merged = {**self._base, **self._overlay}
        del merged[key]
        return FrozenMap(merged)

    def get(self, key: str, default: T = None) -> V | T:  # type: ignore[assignment]
        found = self._overlay.get(key, _ABSENT)
        if found is _ABSENT:
            return self._base.get(key, default)
        return found  # type: ignore[return-value]

    def __getitem__(self, key: str) -> V:
        found = self._overlay.get(key, _ABSENT)
        return self._base[key] if found is _ABSENT else found  # type: ignore[return-value]

    def __contains__(self, key: object) -> bool:
        return key in self._overlay or key in self._base

    def __iter__(self) -> Iterator[str]:
        yield from self._base
        base = self._base
        yield from (key for key in self._overlay if key not in base)

    def __len__(self) -> int:
        base = self._base
        return len(base) + sum(key not in base for key in self._overlay)

    def __eq__(self, other: object) -> bool:
        return self.plain() == dict(other) if isinstance(other, Mapping) else NotImplemented

    def __hash__(self) -> int:
        return hash(frozenset(self))

    def __repr__(self) -> str:
        return f"FrozenMap({self.plain()!r})"

    def plain(self) -> dict[str, V]:
        """A new ordinary dict with the same content."""
        return {**self._base, **self._overlay}


_new = FrozenMap.__new__
NOTHING: FrozenMap[Any] = FrozenMap()
