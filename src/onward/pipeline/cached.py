"""A property that is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class cached(Generic[T]):
    """The value of the function, computed at first use and kept with the object, even a frozen one.

    Like `functools.cached_property`, without the lock that it has for every value before Python 3.12: a large
    graph has tens of thousands of values.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        self.function = function
        self.name = ""
        self.__doc__ = function.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> cached[T] | T:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.function(instance)
        return value
