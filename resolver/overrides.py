"""What-if precisions: answers that a user puts before the chain for the modules that a pattern names."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..grammar.diagnostics import nearest
from .answers import Answer, activations
from .entries import suffixes
from .resolution import Problem, Resolution, Resolved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .lanes import Lanes
    from .modules import Module


@dataclass(frozen=True, slots=True)
class Override:
    """Modules whose path, or a dotted tail of it, matches ``pattern`` run at ``algorithm``."""

    pattern: str
    algorithm: str
    activations: str

    @classmethod
    def parse(cls, text: str) -> Override:
        """Read ``PATTERN=ALGORITHM[:ACTIVATIONS]``.

        Raises
        ------
        UsageError
            BL283: not of that form.
        """
        pattern, sign, word = text.rpartition("=")
        algorithm, _, given = word.partition(":")
        if not sign or not pattern or not algorithm or given not in ("", "static", "dynamic", "none"):
            raise UsageError(
                "BL283",
                f"`{text}` is not PATTERN=ALGORITHM[:ACTIVATIONS]",
                place="--set",
                help='for example --set "mixer.shared_experts.*=fp8:static"',
            )
        return cls(pattern, algorithm, given or activations(algorithm))

    def meets(self, module: Module) -> bool:
        """Return whether the override names a module, loader-side or checkpoint-side."""
        names = (module.path, *module.checkpoint)
        return any(fnmatchcase(tail, self.pattern) for name in names for tail in suffixes(name))


def apply(resolution: Resolution, overrides: Sequence[Override], lanes: Lanes) -> Resolution:
    """Answer again with overrides; the later override wins.

    Modules that the engine builds without a quantization config stay as they are, and the result says so.

    Raises
    ------
    UsageError
        BL284: an override names no module that can be quantized.
    CheckpointError
        BL260: the system cannot run the algorithm.
    """
    met = dict.fromkeys(overrides, 0)
    held: dict[Override, list[str]] = {o: [] for o in overrides}
    rows: list[Resolved] = []
    for row in resolution.rows:
        chosen = next((o for o in reversed(overrides) if o.meets(row.module)), None)
        if chosen is None:
            rows.append(row)
            continue
        if not row.module.configured:
            held[chosen].append(row.module.path)
            rows.append(row)
            continue
        met[chosen] += 1
        answer = Answer(
            chosen.algorithm, chosen.activations, f"what if {chosen.pattern}", "command line", (), "given by the user"
        )
        lane = lanes.choose(answer.algorithm, answer.activations, row.module.kind, resolution.format)
        rows.append(Resolved(row.module, answer, lane))
    problems = list(resolution.problems)
    for override, count in met.items():
        if not count:
            tails = sorted(
                {r.module.path.split(f".{r.module.layer}.", 1)[-1] for r in resolution.rows if r.module.configured}
            )
            hint = nearest(override.pattern, tails) or "`bitlane resolve` lists the modules; `*` stands for any text"
            what = "no module that can be quantized" if held[override] else "no module"
            raise UsageError("BL284", f"`{override.pattern}` names {what}", place="--set", help=hint)
        if held[override]:
            first = held[override][0]
            problems.append(
                Problem("BL286", f"{len(held[override])} modules stay unquantized by construction, such as {first}")
            )
    return Resolution(
        resolution.checkpoint, resolution.reading, resolution.family, resolution.system, rows, resolution.chooser,
        resolution.kv_cache, problems, {**resolution.explicit, **{o.pattern: o.algorithm for o in overrides}},
        lanes=lanes,
    )  # fmt: skip
