"""A fold as bytes. A snapshot is a cache: one that cannot be decoded is as good as none."""

from __future__ import annotations

from types import GenericAlias
from typing import Any, get_args

import msgspec
import zstandard

from onward.model.context import FrozenMap
from onward.model.run import Run


def encode_run(run: Run) -> bytes:
    """The whole state, compressed, with a checksum: a damaged snapshot must not decode to another state."""
    return zstandard.ZstdCompressor(level=3, write_checksum=True).compress(_ENCODER.encode(run))


def decode_run(body: bytes) -> Run | None:
    """The state, or None if these bytes are not one."""
    try:
        return _DECODER.decode(zstandard.ZstdDecompressor().decompress(body))
    except (msgspec.MsgspecError, zstandard.ZstdError, MemoryError):  # a damaged frame may claim any size
        return None


def _plain(value: object) -> Any:
    if isinstance(value, FrozenMap):
        return value.plain()
    raise NotImplementedError(f"{type(value).__name__} in a run's state")


def _frozen(kind: type, value: Any) -> Any:
    """A map with its values as what they are, and not as their JSON."""
    return FrozenMap(msgspec.convert(value, GenericAlias(dict, (str, *get_args(kind)))))


_ENCODER = msgspec.json.Encoder(enc_hook=_plain)
_DECODER = msgspec.json.Decoder(Run, dec_hook=_frozen)
