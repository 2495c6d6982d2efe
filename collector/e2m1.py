"""The 4-bit float E2M1: a sign and one of eight magnitudes. Written with plain operators, for any array library."""

from __future__ import annotations

from typing import Any, Final

MAGNITUDES: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
SIGN: Final = 8


def codes(values: Any) -> Any:
    """Codes 0 to 15 of an array whose every element is a signed member of :data:`MAGNITUDES`.

    Parameters
    ----------
    values
        Floating point array; zero is coded without sign.
    """
    magnitude, code = abs(values), (values < 0) * SIGN
    for step in MAGNITUDES[1:]:
        code = code + (magnitude >= step) * 1
    return code


def pack(values: Any) -> Any:
    """Two values a byte along the last of two axes, the first in the low half: [n, k] -> [n, k / 2] of 0 to 255.

    Parameters
    ----------
    values
        As :func:`codes` takes them; k even.
    """
    code = codes(values)
    return code[:, 0::2] + code[:, 1::2] * 16


def representable(values: Any) -> bool:
    """Whether every element is a signed member of :data:`MAGNITUDES`."""
    magnitude = abs(values)
    hits = sum((magnitude == step) * 1 for step in MAGNITUDES)
    return bool((hits == 1).all())
