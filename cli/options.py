"""Options that several commands share, handed to a command as one object each."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from ..resolver.buckets import Parallel
    from ..resolver.resolution import Resolution

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of which checkpoint: everything that decides a resolution."""

    checkpoint: str
    loader: str
    system: str
    rules: tuple[Path, ...] = ()
    models: tuple[Path, ...] = ()
    gemm_mode: str | None = None
    moe_mode: str | None = None

    def resolve(self) -> Resolution:
        """Answer it."""
        from ..resolver.api import resolve

        modes = {k: v for k, v in (("gemm", self.gemm_mode), ("moe", self.moe_mode)) if v is not None}
        return resolve(self.checkpoint, self.loader, self.system, rules=self.rules, models=self.models, modes=modes)


def _folders(name: str, text: str) -> Callable[[F], F]:
    return click.option(f"--{name}", multiple=True, type=click.Path(path_type=Path), metavar="DIR", help=text)


def checkpoint(function: F) -> F:
    """Take the CHECKPOINT argument and where rules and models are looked for."""
    function = _folders("models", "More folders of org--name checkpoints.")(function)
    function = _folders("rules", "Rule files that overlay the packaged ones.")(function)
    return click.argument("checkpoint")(function)


def target(function: F) -> F:
    """Take the loader and the system."""
    system = click.option("--system", required=True, metavar="NAME", help="GPU system, such as gb200 or h200.")
    loader = click.option("--loader", required=True, metavar="NAME[@VERSION]", help="Engine, such as vllm@0.31.0.")
    return loader(system(function))


def modes(function: F) -> F:
    """Take explicit algorithms that override the checkpoint."""
    moe = click.option("--moe-mode", metavar="ALGORITHM", help="Override: routed experts run at this algorithm.")
    gemm = click.option("--gemm-mode", metavar="ALGORITHM", help="Override: quantizable linears run at this algorithm.")
    return gemm(moe(function))


def _gather(function: Callable[..., Any], name: str, build: Callable[..., Any], keys: tuple[str, ...]) -> Any:
    """Replace the keyword arguments ``keys`` by one argument ``name`` made of them."""

    @functools.wraps(function)
    def wrapper(*args: Any, **given: Any) -> Any:
        taken = {k: given.pop(k) for k in keys if k in given}
        return function(*args, **{name: build(**taken)}, **given)

    return wrapper


_ASKED = ("checkpoint", "loader", "system", "rules", "models", "gemm_mode", "moe_mode")


def question(function: F) -> F:
    """Take CHECKPOINT, loader, system, rules, models and explicit modes, as one argument ``asked``."""
    wrapped: F = checkpoint(target(modes(_gather(function, "asked", Question, _ASKED))))
    return wrapped


def plain_question(function: F) -> F:
    """Take a question without explicit modes, as one argument ``asked``."""
    wrapped: F = checkpoint(target(_gather(function, "asked", Question, _ASKED)))
    return wrapped


def _parallel(**sizes: int) -> Parallel:
    from ..resolver.buckets import Parallel

    return Parallel.of(**sizes)


def parallel(function: F) -> F:
    """Take the parallel sizes, as one argument ``split``."""
    size = click.IntRange(1)
    wrapped: F = _gather(function, "split", _parallel, ("tp", "ep", "dp", "moe_tp", "pp"))
    for option in (
        click.option("--pp", type=size, default=1, show_default=True, help="Pipeline stages."),
        click.option(
            "--moe-tp", type=click.IntRange(0), default=0, help="Tensor split of experts; else what --ep leaves."
        ),
        click.option("--dp", type=size, default=1, show_default=True, help="Attention data parallel size."),
        click.option("--ep", type=size, default=1, show_default=True, help="Expert parallel size."),
        click.option("--tp", type=size, default=1, show_default=True, help="Tensor parallel size."),
    ):
        wrapped = option(wrapped)
    return wrapped


@dataclass(frozen=True, slots=True)
class Folding:
    """Whether buckets of one operation share a line, and whether their parts stand below it."""

    fold: bool = False
    parts: bool = False


def _folding(fold: bool, parts: bool) -> Folding:
    return Folding(fold or parts, parts)


def folding(function: F) -> F:
    """Take how operations are folded, as one argument ``folding``."""
    wrapped: F = _gather(function, "folding", _folding, ("fold", "parts"))
    parts = click.option("--parts", is_flag=True, help="Fold, with what was folded below each line.")
    fold = click.option("--fold", is_flag=True, help="One line per operation; what differs inside it is `mixed`.")
    return fold(parts(wrapped))


as_json = click.option("--json", "as_json", is_flag=True, help="Print the JSON contract.")
price_mode = click.Choice(["SILICON", "HYBRID", "EMPIRICAL", "SOL"], case_sensitive=False)
