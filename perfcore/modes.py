"""The ladder from a part to the rows that price it: own rows, declared donors, roofline."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from . import layout as lay
from . import shapes, sol
from .resolved import (
    INTERPOLATED,
    MEASURED,
    MODES,
    ROOFLINE,
    TRANSFERRED,
    Missing,
    Origin,
    Resolved,
    Scale,
    Term,
)
from .resolved import Mode as Mode
from .specs import SPECS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .lower import Op, Part
    from .pack import Pack
    from .policy import Donor, Lane, Policy
    from .store import Store

# How much nearer (in octaves) a shape of the next version must be to be preferred.
VERSION_STEP: Final = 0.25


class Ladder:
    """Resolves parts for one system, backend, version and mode."""

    def __init__(
        self, store: Store, policy: Policy, machine: sol.Machine, backend: str, version: str, mode: Mode
    ) -> None:
        if mode not in MODES:
            raise UsageError("BL525", f"unknown mode `{mode}`", place="--mode", help=f"one of {', '.join(MODES)}")
        self.store, self.policy, self.machine = store, policy, machine
        self.backend, self.version, self.mode = backend, version, mode
        self.open = mode in ("HYBRID", "EMPIRICAL")

    def resolve(self, part: Part) -> Resolved | None:
        """Find what prices a part; None when the mode allows nothing that exists."""
        if not part.table or self.mode == "SOL":
            return self._roofline(part)
        pack = self.store.get(part.table)
        if pack is not None:
            lane = self.policy.lane(part.kind, part.lane) if part.kind else None
            found = self._direct(part, pack, lane)
            if found is None and self.open:
                found = self._donated(part, pack, lane) or self._other_system(part, pack, lane)
            if found is not None:
                return found
        return self._roofline(part) if self.open else None

    def _roofline(self, part: Part) -> Resolved:
        origin = {"system": self.machine.name, "method": "roofline of systems.yaml"}
        return Resolved(part, (), ROOFLINE, origin, "roofline")

    # -- own lane ------------------------------------------------------------------------------------------------

    def _direct(self, part: Part, pack: Pack, lane: Lane | None) -> Resolved | None:
        """Own rows, own version first; a slab of a single row only when nothing better exists."""
        for enough in (2, 1):
            for origin, rung in self._origins(pack, self.machine.name):
                found = self._own(part, pack, lane, origin, rung, enough)
                if found is not None:
                    return found
        return None

    def _own(
        self, part: Part, pack: Pack, lane: Lane | None, origin: Origin, rung: str, enough: int
    ) -> Resolved | None:
        least = MEASURED if rung == "own" else TRANSFERRED
        slab = self._slab(pack, part, origin, lane.rows if lane else "", enough)
        if slab >= 0:
            return Resolved(part, (self._term(part, pack, slab),), least, self._origin(origin), rung)
        if lane is None:
            return None
        if lane.same_as:
            slab = self._slab(pack, part, origin, lane.same_as, enough)
            if slab >= 0:
                note = self._origin(origin) | {"rows_of": lane.same_as}
                return Resolved(part, (self._term(part, pack, slab),), max(least, INTERPOLATED), note, "same")
        return self._minus(part, pack, lane, origin, least, enough)

    def _minus(self, part: Part, pack: Pack, lane: Lane, origin: Origin, least: int, enough: int) -> Resolved | None:
        """Base rows minus a difference table, whose version may differ; the origin names both."""
        if lane.minus is None:
            return None
        base, table = lane.minus
        slab = self._slab(pack, part, origin, base, enough)
        other = self.store.get(table)
        if slab < 0 or other is None:
            return None
        for saved, _ in self._origins(other, origin[0], backend=origin[1], version=origin[2]):
            place = other.find(
                dict(zip(("system", "backend", "backend_version"), saved, strict=True)) | {"quant_mode": base}
            )
            if place >= 0:
                terms = (self._term(part, pack, slab), Term(other, place, 0.0, part.a1, part.x, -1))
                note = self._origin(origin) | {"rows_of": base, "minus": {"table": table, "version": saved[2]}}
                return Resolved(part, terms, max(least, INTERPOLATED), note, "minus")
        return None

    # -- donors --------------------------------------------------------------------------------------------------

    def _donated(self, part: Part, pack: Pack, lane: Lane | None) -> Resolved | None:
        for donor in lane.donors if lane else ():
            for origin in self._by_distance(part, pack, donor):
                found = self.scaled(part, pack, donor.rows, donor.nearest, origin)
                if found is not None:
                    return found
        if lane is not None:
            return None
        found = self._irrelevant(part, pack)
        for origin, _ in () if found else self._origins(pack, self.machine.name):
            found = found or self.scaled(part, pack, "", True, origin)
        return found

    def scaled(
        self,
        part: Part,
        pack: Pack,
        rows: str,
        nearest: bool,
        origin: Origin,
        excluding: npt.NDArray[np.int64] | None = None,
    ) -> Resolved | None:
        """Scale another lane's (or shape's) rows by the ratio of the rooflines above the donor's launch floor.

        Parameters
        ----------
        part, pack
            What to price, and the table.
        rows
            Lane label of the donor rows.
        nearest
            Take the nearest measured shape instead of the part's own.
        origin
            System, backend and version of the donor rows.
        excluding
            Slabs that must not serve, when the rule itself is being measured.
        """
        stretch = 1.0
        if nearest:
            slab, stretch, _ = shapes.nearest(pack, part, origin, rows, excluding)
        else:
            slab = self._slab(pack, part, origin, rows, 2)
        if slab < 0:
            return None
        key = pack.key(slab)
        x = replace(part.x, scale=part.x.scale * stretch)
        term = Term(pack, slab, part.a0, part.a1, x)
        donor = self._bound(pack, key, origin[0])
        if donor is None:
            return None
        floor, floor_term = float(pack.arrays["group_min"][int(pack.slabs[slab, lay.GROUP])]), None
        if pack.spec.name == "gemm":
            floor_term = replace(term, a0=float(pack.arrays["least_a0"][slab]))
        scale = Scale(part.roofline, donor, part.a0, part.a1, x, floor, floor_term)
        note = self._origin(origin) | {"rows_of": rows or part.lane}
        if nearest:
            note["shape"] = {c: key[c] for c in pack.spec.keys if c not in ("system", "backend", "backend_version")}
        return Resolved(part, (term,), TRANSFERRED, note, "shape" if nearest else "lane", scale)

    def _by_distance(self, part: Part, pack: Pack, donor: Donor) -> list[Origin]:
        """Order the origins of a donor: as declared, or by how near their nearest shape is."""
        origins = [origin for origin, _ in self._origins(pack, self.machine.name)]
        if not donor.nearest:
            return origins
        far = [
            shapes.nearest(pack, part, origin, donor.rows, None)[2] + VERSION_STEP * i
            for i, origin in enumerate(origins)
        ]
        return [origins[i] for i in np.argsort(far, kind="stable")]

    def _irrelevant(self, part: Part, pack: Pack) -> Resolved | None:
        """Take rows whose key differs only in columns that the policy declares irrelevant to the kernel."""
        loose = self.policy.data["irrelevant"].get(pack.spec.name, ())
        if not loose:
            return None
        free = {c: pack.vocab[c] for c in loose if c in pack.vocab}
        for origin, _ in self._origins(pack, self.machine.name):
            slab = self._slab(pack, replace(part, key=dict(part.key) | free), origin, "", 2)
            if slab >= 0:
                note = self._origin(origin) | {"differs_in": {c: pack.key(slab)[c] for c in loose}}
                return Resolved(part, (self._term(part, pack, slab),), TRANSFERRED, note, "shape")
        return None

    def _other_system(self, part: Part, pack: Pack, lane: Lane | None) -> Resolved | None:
        for system in self.policy.data["systems"].get(self.machine.name, ()):
            for origin, _ in self._origins(pack, system):
                for rows in (lane.rows, *(d.rows for d in lane.donors if not d.nearest)) if lane else ("",):
                    found = self.scaled(part, pack, rows, False, origin)
                    if found is not None:
                        return replace(found, rung="system")
        return None

    # -- where rows may come from --------------------------------------------------------------------------------

    def _origins(
        self, pack: Pack, system: str, *, backend: str = "", version: str = ""
    ) -> Iterator[tuple[Origin, str]]:
        """List the origins that the mode allows, best first, each with the rung that it means."""
        backend, version = backend or self.backend, version or self.version
        library = self.policy.data["library_tables"].get(pack.spec.name)
        if library:
            for choice in library["versions"]:
                yield (system, library["backend"], choice), "library"
            return
        yield (system, backend, version), "own"
        for other in self.policy.versions(version, self._present(pack, system, backend, version)):
            yield (system, backend, other), "version"
        if self.open:
            for donor in self.policy.data["backends"].get(backend, ()):
                for other in self._present(pack, system, donor, ""):
                    yield (system, donor, other), "backend"

    def _present(self, pack: Pack, system: str, backend: str, without: str) -> list[str]:
        """Versions that a table holds for a system and backend, newest first."""
        codes = pack.codes("system").get(system, -1), pack.codes("backend").get(backend, -1)
        groups = pack.arrays["groups"]
        found = np.unique(groups[(groups[:, 0] == codes[0]) & (groups[:, 1] == codes[1])][:, 2])
        names = [str(pack.vocab["backend_version"][int(code)]) for code in found]
        return self.policy.versions("999999", [name for name in names if name != without])

    def _slab(self, pack: Pack, part: Part, origin: Origin, rows: str, enough: int) -> int:
        """Find the slab of a part's key; a list-valued key column means the first alternative that exists."""
        key = dict(part.key) | dict(zip(("system", "backend", "backend_version"), origin, strict=True))
        if part.kind:
            key[pack.spec.lane] = rows
        if key.pop("tp", 1) != 1:
            return -1
        choices = [v if isinstance(v, list) else [v] for v in (key[c] for c in pack.spec.keys)]
        for values in itertools.product(*choices):
            slab = pack.find(dict(zip(pack.spec.keys, values, strict=True)))
            if slab >= 0:
                row = pack.slabs[slab]
                if int(row[lay.A0_N] * row[lay.A1_N] * row[lay.X_N]) >= enough:
                    return slab
        return -1

    def _bound(self, pack: Pack, key: Mapping[str, Any], system: str) -> list[sol.Row] | None:
        donor = sol.machine(self.store.systems, system)
        return sol.table_rows(pack.spec.name, key, donor, self.policy)

    @staticmethod
    def _term(part: Part, pack: Pack, slab: int) -> Term:
        return Term(pack, slab, part.a0, part.a1, part.x)

    @staticmethod
    def _origin(origin: Origin) -> dict[str, Any]:
        return dict(zip(("system", "backend", "version"), origin, strict=True))

    def missing(self, op: Op, part: Part) -> Missing:
        """Describe a part that has no price."""
        spec = SPECS[part.table]
        quant = self.policy.lane(part.kind, part.lane).rows if part.kind else ""
        key = {c: v[0] if isinstance(v, list) else v for c, v in part.key.items() if c != "tp"}
        return Missing(op, spec.name, spec.label, quant, key)
