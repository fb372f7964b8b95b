"""Bars for a terminal: a share of something, in eighths of a character."""

from __future__ import annotations

WIDTH = 20
_EIGHTHS = " ▏▎▍▌▋▊▉"


def bar(used: int, whole: int, reserved: int = 0, *, width: int = WIDTH) -> str:
    """How much of something is used, with what is reserved after it, and the share in percent."""
    if whole <= 0:
        return ""
    full = _part(used, whole, width)
    held = _part(used + reserved, whole, width)[len(full) :]
    drawn = (full + "░" * len(held)).ljust(width, "·")[:width]
    return f"{drawn} {100 * used // whole} %"


def share(part: int, largest: int, *, width: int = WIDTH) -> str:
    """A bar as long as the part is of the largest."""
    return _part(part, largest, width) if largest > 0 else ""


def _part(part: int, whole: int, width: int) -> str:
    eighths = min(8 * width * part // whole, 8 * width)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
