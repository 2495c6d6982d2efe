"""Packing of NVFP4 weights against a decoder that knows the format from its bits alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlane.collector import e2m1


def decode_nibble(nibble):
    """OCP E2M1: one sign bit, two exponent bits with bias 1, one mantissa bit, subnormals, no infinities."""
    sign, exponent, mantissa = nibble >> 3, (nibble >> 1) & 3, nibble & 1
    value = mantissa * 0.5 if exponent == 0 else (1 + mantissa / 2) * 2.0 ** (exponent - 1)
    return -value if sign else value


def unpack(packed):
    """[n, k / 2] bytes -> [n, k] values, low half first."""
    packed = np.asarray(packed).astype(int)
    table = np.array([decode_nibble(nibble) for nibble in range(16)])
    out = np.empty((packed.shape[0], packed.shape[1] * 2))
    out[:, 0::2], out[:, 1::2] = table[packed & 15], table[packed >> 4]
    return out


VALUE = st.sampled_from([sign * size for sign in (-1.0, 1.0) for size in e2m1.MAGNITUDES])


@given(st.lists(st.lists(VALUE, min_size=8, max_size=8), min_size=1, max_size=6))
def test_packed_values_come_back(rows):
    values = np.array(rows)
    assert e2m1.representable(values)
    packed = e2m1.pack(values)
    assert packed.min() >= 0
    assert packed.max() <= 255
    np.testing.assert_array_equal(unpack(packed), values)


def test_the_sixteen_codes():
    want = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert [decode_nibble(code) for code in range(8)] == want, "magnitudes of the OCP microscaling specification"
    assert e2m1.codes(np.array(want)).tolist() == list(range(8))
    assert e2m1.codes(-np.array(want[1:])).tolist() == list(range(9, 16))


def test_the_first_value_is_in_the_low_half():
    assert e2m1.pack(np.array([[1.0, -6.0]])).tolist() == [[0xF2]]


@pytest.mark.parametrize("value", [0.25, 5.0, 7.0, -0.75, float("nan"), float("inf")])
def test_other_values_are_not_representable(value):
    assert not e2m1.representable(np.array([[1.0, value]]))
