"""Task files: one question about a checkpoint, saved so that it can be asked again.

A mode that was not given is written as null: reloading asks the checkpoint again and freezes nothing inferred.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, Literal

import msgspec

from ..errors import UsageError
from .buckets import Parallel

SCHEMA: Final = "bitlane.task/1"
_LIMIT = 64 << 10


class Split(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Parallel sizes; ``moe_tp`` null is what ``ep`` leaves of ``tp x dp``."""

    tp: int = 1
    ep: int = 1
    dp: int = 1
    pp: int = 1
    moe_tp: int | None = None

    def parallel(self) -> Parallel:
        """Return the checked split."""
        return Parallel.of(self.tp, self.ep, self.dp, self.pp, self.moe_tp or 0)


class Pass(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One forward pass: prefill of ``batch`` prompts of ``isl`` tokens, or a decode step with ``isl`` tokens cached."""

    phase: Literal["prefill", "decode"]
    batch: int = 1
    isl: int = 1024
    prefix: int = 0


class Modes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Explicit algorithms; null means that the checkpoint decides."""

    gemm: str | None = None
    moe: str | None = None
    lm_head: str | None = None

    def given(self) -> dict[str, str]:
        """Return the modes that are explicit."""
        return {k: v for k, v in msgspec.structs.asdict(self).items() if v}


class Pricing(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the passes are priced."""

    mode: Literal["SILICON", "HYBRID", "EMPIRICAL", "SOL"] = "HYBRID"
    allow_roofline: tuple[str, ...] = ()
    routing: str | None = None


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A checkpoint, where it runs, how it is split, what it processes, and what is not left to the checkpoint."""

    checkpoint: str
    loader: str
    system: str
    schema: Literal["bitlane.task/1"] = SCHEMA
    parallel: Split = Split()
    workload: tuple[Pass, ...] = (Pass(phase="prefill"), Pass(phase="decode"))
    modes: Modes = Modes()
    price: Pricing = Pricing()


def dumps(task: Task) -> str:
    """Write a task as YAML, every field spelled out."""
    import yaml

    text: str = yaml.safe_dump(msgspec.to_builtins(task), sort_keys=False, allow_unicode=True, default_flow_style=False)
    return text


def loads(text: str, place: str = "<task>") -> Task:
    """Read a task.

    Raises
    ------
    UsageError
        BL270: no YAML, an unknown field, or a value of the wrong type; the message names the field.
    """
    if len(text) > _LIMIT:
        raise UsageError("BL270", "a task file of more than 64 KiB", place=place, help="it holds one question")
    try:
        return msgspec.yaml.decode(text, type=Task)
    except msgspec.MsgspecError as error:
        what = str(error).splitlines()[0]
        raise UsageError(
            "BL270",
            f"not a task: {what[0].lower()}{what[1:]}",
            place=place,
            help="`bitlane task new` writes a complete one",
        ) from error
    except RecursionError:
        raise UsageError("BL270", "the task is nested too deeply", place=place, help="write it flat") from None


def load(path: str | os.PathLike[str]) -> Task:
    """Read a task file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "BL270", f"cannot read the task: {error}", place=os.fspath(path), help="check the path"
        ) from error
    return loads(text, os.fspath(path))


def save(task: Task, path: str | os.PathLike[str], *, replace: bool = False) -> None:
    """Write a task file.

    Raises
    ------
    UsageError
        BL270: it cannot be written. BL279: a file is there, and ``replace`` is not set.
    """
    try:
        with Path(path).open("w" if replace else "x", encoding="utf-8") as file:
            file.write(dumps(task))
    except FileExistsError:
        raise UsageError(
            "BL279", "the file is there already", place=os.fspath(path), help="name another one, or give --force"
        ) from None
    except OSError as error:
        raise UsageError(
            "BL270", f"cannot write the task: {error.strerror}", place=os.fspath(path), help="check the path"
        ) from error
