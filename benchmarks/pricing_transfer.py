"""How wrong scaled prices are: every transfer rule applied where the target was measured.

    python benchmarks/pricing_transfer.py

Prints, per rule, the 5 %, 50 % and 95 % quantiles of measured over predicted. `transfer_bands` of
perfcore/policy.yaml are rounded outwards from these.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from bitlane.perfcore import Store, sol
from bitlane.perfcore import workload as wl
from bitlane.perfcore.lower import Coordinate, Part
from bitlane.perfcore.modes import Ladder
from bitlane.perfcore.plan import Plan
from bitlane.perfcore.policy import load

if TYPE_CHECKING:
    from bitlane.perfcore.resolved import Resolved

STORE, POLICY = Store(), load()
LABELS = {"bfloat16": "bf16", "fp8": "fp8_dynamic", "w4a16_mxfp4": "mxfp4_wo", "w4a8_mxfp4_mxfp8": "mxfp4_w4a8"}


def ladder(system: str, version: str) -> Ladder:
    """A HYBRID ladder of one system and vLLM version."""
    return Ladder(STORE, POLICY, sol.machine(STORE.systems, system), "vllm", version, "HYBRID")


def evaluate(found: Resolved, x: Any) -> Any:
    """Price a resolved part at tokens x."""
    plan = Plan("decode", found.origin["system"], "vllm", "", "HYBRID", (), (), STORE, POLICY)
    return plan._part(found, wl.variables("decode", x, 1), "")[0]


def gemm(system: str, version: str, lane: str, donor: str, seen: dict[str, list[Any]]) -> None:
    """Predict a GEMM lane from another lane's rows at the same widths."""
    pack, rungs = STORE.table("gemm"), ladder(system, version)
    origin = (system, "vllm", version)
    slab = pack.find(dict(zip(pack.spec.keys, (*origin, lane), strict=True)))
    if slab < 0:
        return
    rows = sol.gemm(POLICY.cost(lane), rungs.machine)
    a0, a1, x = (pack.axis(slab, number) for number in range(3))
    values = pack.arrays["values"][pack.cells(slab)].reshape(len(a0), len(a1), len(x))
    for i, n in enumerate(a0):
        if n < 256 or n % 64:
            continue
        for j, k in enumerate(a1):
            if k < 512 or np.isnan(values[i, j]).all():
                continue
            part = Part("gemm", "gemm", {}, LABELS.get(lane, lane), float(n), Coordinate(float(k)),
                        Coordinate(1.0, wl.TOKENS), rows)  # fmt: skip
            found = rungs.scaled(part, pack, donor, False, origin)
            if found is not None:
                seen[f"gemm {lane} from {donor}"].append(_pairs(values[i, j] / evaluate(found, x), x))


def moe(system: str, version: str, lane: str, donor: str, nearest: bool, seen: dict[str, list[Any]]) -> None:
    """Predict a MoE lane from another lane, or from another model's shape."""
    pack, rungs = STORE.table("moe"), ladder(system, version)
    keys, names = pack.arrays["keys"], pack.spec.keys
    model = [names.index(c) for c in ("hidden_size", "inter_size", "topk", "num_experts")]
    want = {"system": system, "backend_version": version, "quant_mode": lane, "routing_distribution": "power_law_1.01"}
    member = np.ones(len(keys), bool)
    for column, value in want.items():
        member &= keys[:, names.index(column)] == pack.codes(column).get(value, -1)
    for slab in np.flatnonzero(member):
        key = pack.key(int(slab))
        shape = {c: key[c] for c in names if c not in ("system", "backend", "backend_version", "quant_mode")}
        cost = POLICY.cost(lane)
        gated = [key["hidden_size"], key["inter_size"]] not in POLICY.data["ungated_experts"]
        rows = sol.moe(key, cost, rungs.machine, gated=gated)
        part = Part("moe", "moe", shape, LABELS.get(lane, lane), 0.0, Coordinate(0.0), Coordinate(1.0, wl.TOKENS), rows)
        same = np.flatnonzero((keys[:, model] == keys[slab, model]).all(axis=1))
        found = rungs.scaled(part, pack, donor, nearest, (system, "vllm", version), same if nearest else None)
        if found is None:
            continue
        x, y = pack.axis(int(slab), 2), pack.arrays["values"][pack.cells(int(slab))]
        kernel = pack.kernels[int(pack.arrays["kernel"][pack.cells(int(slab))][0])]
        marlin = " (Marlin)" if "marlin" in kernel else ""
        seen[f"moe {lane}{marlin} from {donor}{' nearest' if nearest else ''}"].append(
            _pairs(y / evaluate(found, x), x)
        )


def system(target: str, donor: str, version: str, table: str, seen: dict[str, list[Any]]) -> None:
    """Predict one system's rows from another's."""
    pack, rungs = STORE.table(table), ladder(target, version)
    for slab in range(len(pack.slabs)):
        key = pack.key(slab)
        if (key["system"], key["backend_version"]) != (target, version):
            continue
        lane = str(key["quant_mode"])
        if table == "moe":
            if key["routing_distribution"] != "power_law_1.01":
                continue
            rows = sol.table_rows("moe", key, rungs.machine, POLICY)
            shape = {c: v for c, v in key.items() if c not in ("system", "backend", "backend_version", "quant_mode")}
            part = Part("moe", "moe", shape, lane, 0.0, Coordinate(0.0), Coordinate(1.0, wl.TOKENS), rows)
            found = rungs.scaled(part, pack, lane, False, (donor, "vllm", version))
            if found is not None:
                x, y = pack.axis(slab, 2), pack.arrays["values"][pack.cells(slab)]
                seen[f"{table} {target} from {donor}"].append(_pairs(y / evaluate(found, x), x))
            continue
        a0, a1, x = (pack.axis(slab, number) for number in range(3))
        values = pack.arrays["values"][pack.cells(slab)].reshape(len(a0), len(a1), len(x))
        for i, n in enumerate(a0):
            for j, k in enumerate(a1):
                if n >= 256 and k >= 512 and not np.isnan(values[i, j]).all():
                    part = Part("gemm", "gemm", {}, lane, float(n), Coordinate(float(k)), Coordinate(1.0, wl.TOKENS),
                                sol.gemm(POLICY.cost(lane), rungs.machine))  # fmt: skip
                    found = rungs.scaled(part, pack, lane, False, (donor, "vllm", version))
                    if found is not None:
                        seen[f"{table} {target} from {donor}"].append(_pairs(values[i, j] / evaluate(found, x), x))


def _pairs(ratio: Any, x: Any) -> Any:
    good = np.isfinite(ratio)
    return np.stack([ratio[good], x[good]], axis=1)


def report(seen: dict[str, list[Any]]) -> None:
    """Print the quantiles per rule, in all and by rows."""
    for name, parts in seen.items():
        ratio, x = np.concatenate(parts).T
        cells = []
        for low, high in ((0, np.inf), (0, 32), (32, 512), (512, np.inf)):
            part = ratio[(x > low) & (x <= high)]
            cells.append("{:5.2f} {:5.2f} {:5.2f}".format(*np.quantile(part, [0.05, 0.5, 0.95])))
        print(f"{name:48s} {len(ratio):7d}   " + "   |   ".join(cells))


def versions() -> None:
    """Print the spread between adjacent versions, pooled over the tables that have two."""
    for table in ("gemm", "moe"):
        pack = STORE.table(table)
        spread = np.exp(pack.arrays["bands"][:, -1])
        print(f"version to version, {table}: median band {np.median(spread, axis=(0, 1)).round(3).tolist()}")


def main() -> None:
    """Measure every rule."""
    seen: dict[str, list[Any]] = defaultdict(list)
    for name in ("gb200", "h200_sxm"):
        for lane in ("fp8", "nvfp4", "fp8_block"):
            gemm(name, "0.25.0", lane, "bfloat16", seen)
    for name in ("gb200", "b200_sxm", "h200_sxm", "h100_sxm"):
        for lane, donor, nearest in (
            ("w4a16_mxfp4", "int4_wo", True), ("int4_wo", "w4a16_mxfp4", True), ("bfloat16", "bfloat16", True),
            ("nvfp4", "nvfp4", True), ("fp8_block", "fp8_block", True), ("fp8", "fp8", True),
            ("nvfp4", "bfloat16", False), ("fp8", "bfloat16", False), ("fp8_block", "fp8", False),
        ):  # fmt: skip
            moe(name, "0.25.0", lane, donor, nearest, seen)
    for target, donor in (("gb200", "b200_sxm"), ("h200_sxm", "h100_sxm")):
        for table in ("gemm", "moe"):
            system(target, donor, "0.25.0", table, seen)
    print(f"{'rule':48s} {'rows':>7s}   all x                |   x <= 32             |   33 to 512           |   above")
    report(seen)
    versions()


if __name__ == "__main__":
    main()
