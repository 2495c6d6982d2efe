"""Errors and bands on rows that were kept apart: 1 % random rows of every table, never used for tuning.

    python benchmarks/pricing_accuracy.py [TABLE ...] [--share 0.01] [--seed 20261129]

Every table is packed again without the drawn rows, which are then priced. `reference` is the scheme of the same rows
that interpolates along the curve axis alone (linear, square root for full-window prefill, interleaved fp8_block curves
kept apart). Errors are |predicted / measured - 1|, median / 95 % quantile in percent; `in band` is the share of rows
inside their 90 % band.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import numpy as np

from bitlane.perfcore import Lookups, Store, bands, gaps
from bitlane.perfcore import pack as packing
from bitlane.perfcore.policy import load
from bitlane.perfcore.specs import IN_GAP, SPECS, X_INTERPOLATED
from bitlane.perfcore.store import read_columns

if TYPE_CHECKING:
    from bitlane.perfcore.pack import Columns, Pack


def keys_of(pack: Pack, columns: Columns) -> dict[str, object]:
    """Key columns as plain arrays."""
    return {
        c: np.array(columns.text[c].names)[columns.text[c].codes] if c in columns.text else columns.data[c]
        for c in pack.spec.keys
    }


def along_x(pack: Pack, columns: Columns) -> np.ndarray:
    """The reference scheme: the line along the curve axis, for cells of the grid."""
    slab = pack.find_many(keys_of(pack, columns))
    place = []
    for number, axis in enumerate(pack.spec.axes):
        at = np.zeros(len(slab), np.int64)
        if axis is not None:
            for one in np.unique(slab[slab >= 0]):
                mine = slab == one
                known = pack.axis(int(one), number)
                found = np.searchsorted(known, columns.data[axis.column][mine])
                hit = (found < len(known)) & (
                    known[np.minimum(found, len(known) - 1)] == columns.data[axis.column][mine]
                )
                at[mine] = np.where(hit, found, -1)
        place.append(at)
    row = pack.slabs[np.maximum(slab, 0)]
    cell = row[:, 6] + (place[0] * row[:, 3] + place[1]) * row[:, 5] + place[2]
    good = (slab >= 0) & (np.min(place, axis=0) >= 0)
    assert pack.guesses is not None
    guess = np.full(len(slab), np.nan)
    guess[good] = pack.guesses[gaps.ALONG_X, cell[good]]
    return guess


def table(name: str, share: float, seed: int) -> None:
    """Hold rows of one table back and report."""
    spec, store = SPECS[name], Store()
    columns = read_columns(spec, store.files(name))
    count = len(columns)
    drawn = np.sort(np.random.default_rng(seed).choice(count, max(int(count * share), min(count, 200)), replace=False))
    kept = np.ones(count, bool)
    kept[drawn] = False
    pack = bands.annotate(packing.build(spec, columns.take(kept)))
    store._packs[name] = pack
    asked = columns.take(drawn)
    slab = pack.find_many(keys_of(pack, asked))
    coordinates = [
        np.zeros(len(drawn)) if axis is None else asked.data[axis.column].astype(np.float64) for axis in spec.axes
    ]
    ms, status = Lookups(store, load(), name)(slab, *coordinates)
    truth = asked.data["latency_ms"]
    spread = bands.factors(pack, slab, status, coordinates[2], version=False)
    inside = (truth >= ms * spread[:, 0]) & (truth <= ms * spread[:, 1])
    reference = along_x(pack, asked)
    interior = (slab >= 0) & ((status & ~IN_GAP) == X_INTERPOLATED)
    # A curve of its own slab lost this x altogether: both schemes are the line between its neighbours.
    reference = np.where(np.isnan(reference), ms, reference)
    lanes = keys_of(pack, asked)[spec.lane] if spec.lane else keys_of(pack, asked)["kernel_source"]
    for lane in [*np.unique(lanes), "all"]:
        rows = interior if lane == "all" else interior & (lanes == lane)
        if rows.sum() < 20:
            continue
        mine, theirs = (100 * np.quantile(np.abs(g[rows] / truth[rows] - 1), (0.5, 0.95)) for g in (ms, reference))
        print(
            f"| {name} | {lane} | {rows.sum():,} | {mine[0]:.1f} / {mine[1]:.1f} | {theirs[0]:.1f} / {theirs[1]:.1f} "
            f"| {100 * inside[rows].mean():.1f} % |"
        )
    edge = (slab >= 0) & ~interior
    if edge.sum() >= 20:
        error = 100 * np.quantile(np.abs(ms[edge] / truth[edge] - 1), (0.5, 0.95))
        print(
            f"| {name} | past an end | {edge.sum():,} | {error[0]:.1f} / {error[1]:.1f} | "
            f"| {100 * inside[edge].mean():.1f} % |"
        )


def main() -> None:
    """Report every table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE")
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=20261129)
    options = parser.parse_args()
    print("| table | lane | rows | error, % | reference, % | in band |\n|---|---|---:|---|---|---:|")
    for name in options.tables or SPECS:
        table(name, options.share, options.seed)


if __name__ == "__main__":
    main()
