"""How a model is split over GPUs, and what of a matrix one rank holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from .modules import Member, Module

_PAD = 64  # vocabularies are padded to it before they are split


@dataclass(frozen=True, slots=True)
class Parallel:
    """How a model is split.

    Attributes
    ----------
    tp
        Tensor parallel size of attention and dense layers.
    moe_tp, moe_ep
        How the routed experts are split; their product is the number of ranks that share them.
    dp
        Attention data parallel size: every one of these groups runs a batch of its own, and they share the experts.
    pp
        Pipeline stages.
    """

    tp: int = 1
    moe_tp: int = 1
    moe_ep: int = 1
    dp: int = 1
    pp: int = 1

    @classmethod
    def of(cls, tp: int = 1, ep: int = 1, dp: int = 1, pp: int = 1, moe_tp: int = 0) -> Parallel:
        """Fill what was left open: experts are split over all of ``tp * dp`` ranks, by expert first.

        Raises
        ------
        UsageError
            BL225: a size below one, or an expert split that does not fill the ranks.
        """
        for name, value in (("tp", tp), ("ep", ep), ("dp", dp), ("pp", pp)):
            if value < 1:
                raise UsageError("BL225", f"{name} is {value}", place=f"--{name}", help="sizes start at 1")
        ranks = tp * dp
        if moe_tp == 0:
            if ranks % ep:
                raise UsageError(
                    "BL225",
                    f"{ep} expert groups do not divide {ranks} ranks",
                    place="--ep",
                    help="ep must divide tp x dp",
                )
            moe_tp = ranks // ep
        if moe_tp * ep != ranks:
            raise UsageError(
                "BL225",
                f"moe_tp {moe_tp} x ep {ep} is not tp {tp} x dp {dp}",
                place="--moe-tp",
                help="the experts are split over all ranks",
            )
        return cls(tp, moe_tp, ep, dp, pp)

    @property
    def gpus(self) -> int:
        """GPUs of one copy of the model."""
        return self.tp * self.dp * self.pp

    @property
    def values(self) -> dict[str, int]:
        """Names that rules may use."""
        return {"tp": self.tp, "ep": self.moe_ep, "moe_tp": self.moe_tp, "dp": self.dp, "pp": self.pp}

    @property
    def text(self) -> str:
        """Sizes for people; those that are 1 are left out, except tp."""
        sizes = {"tp": self.tp, "ep": self.moe_ep, "dp": self.dp, "pp": self.pp}
        return ", ".join(f"{name} {size}" for name, size in sizes.items() if size > 1 or name == "tp")


def divide(size: int, parts: int, what: str) -> int:
    """Divide a size that must come out even.

    Raises
    ------
    UsageError
        BL225: it does not.
    """
    if size % parts:
        raise UsageError(
            "BL225",
            f"{what} is {size}, which {parts} ranks do not divide",
            place="--tp",
            help="choose a size that divides it",
        )
    return size // parts


def _heads(member: Member, tp: int, module: Module) -> int:
    """Return how many heads one rank holds; fewer heads than ranks are copied, where the copies come out even."""
    if member.heads >= tp:
        return divide(member.heads, tp, f"the head count of `{module.path}`")
    if tp % member.heads:
        raise UsageError(
            "BL225",
            f"`{module.path}` has {member.heads} heads, which {tp} ranks cannot share",
            place="--tp",
            help="choose a multiple or a divisor",
        )
    return 1


def local(member: Member, tp: int, module: Module) -> tuple[int, int]:
    """Return ``(out, in)`` of one matrix on one rank.

    Raises
    ------
    UsageError
        BL225: the split does not divide the size; heads fewer than ranks are copied where they divide them.
    """
    what = f"the {'input' if member.style == 'row' else 'output'} of `{module.path}`"
    if tp == 1 or member.style == "replicated":
        return member.out, member.into
    if member.style == "row":
        return member.out, divide(member.into, tp, what)
    if not member.heads:
        return divide(member.out, tp, what), member.into
    rows = member.head_rows or member.out
    return divide(member.out - rows, tp, what) + _heads(member, tp, module) * (rows // member.heads), member.into


def local_vocabulary(size: int, tp: int) -> int:
    """Return the rows of an embedding or head on one rank: padded to a multiple of 64 first when it is split."""
    return size if tp == 1 else -(-(-(-size // _PAD) * _PAD) // tp)


@dataclass(frozen=True, slots=True)
class ExpertSizes:
    """Routed experts of one layer: the whole model's sizes, and what one rank holds of them.

    Attributes
    ----------
    count, topk, hidden, inter, gated
        Experts, experts a token, sizes of one expert, and 1 where a gate matrix stands beside the up matrix.
    local_count, local_inter
        On the rank that holds most.
    """

    count: int
    topk: int
    hidden: int
    inter: int
    gated: int
    local_count: int
    local_inter: int


def expert_sizes(module: Module, parallel: Parallel) -> ExpertSizes:
    """Return the sizes of a module of experts.

    Raises
    ------
    UsageError
        BL226: the family leaves one out; BL225: the split does not divide the intermediate size.
    """
    a = module.attributes
    missing = [k for k in ("hidden", "inter", "topk", "count") if k not in a]
    if missing:
        raise UsageError(
            "BL226",
            f"`{module.path}` does not say its {missing[0]}",
            place=f"{module.file}:{module.line}",
            help="complete the `experts` statement",
        )
    inter = divide(a["inter"], parallel.moe_tp, f"the intermediate size of `{module.path}`")
    # Experts that do not come out even leave some ranks one short.
    count = -(-a["count"] // parallel.moe_ep)
    return ExpertSizes(a["count"], a["topk"], a["hidden"], a["inter"], a.get("gated", 1), count, inter)
