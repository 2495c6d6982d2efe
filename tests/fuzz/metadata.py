"""Mutated metadata: every checkpoint ends in an answer or in an error with a code, and soon.

Run ``python -m tests.fuzz.metadata 1000000 [FIRST_SEED]`` from the checkout; it prints failures, the outcomes by code
and the slowest cases, and ends with 1 when anything but a BitlaneError came out.
"""

from __future__ import annotations

import copy
import json
import random
import signal
import sys
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bitlane.errors import BitlaneError
from bitlane.resolver.api import resolve_with
from bitlane.resolver.checkpoint import Checkpoint
from bitlane.resolver.metadata import parse_json
from bitlane.rules import library
from tests.conformance.generated import bases, case

if TYPE_CHECKING:
    from types import FrameType

HANG_S = 20
LOADERS = ("vllm@0.32.0", "vllm@0.31.0", "vllm@0.30.0", "vllm@0.24.0", "vllm@0.32.0", "sglang", "trtllm", "spec")
SMALL = ("llama", "mixtral", "stablelm", "nemotron_h", "qwen3_moe_dense", "deepseek_v4", "gpt_oss", "minimax_m2")
_NASTY: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    10**30,
    0.5,
    float("inf"),
    float("-inf"),
    float("nan"),
    "",
    "x",
    "*",
    "re:",
    "re:(",
    "re:(a+)+$",
    "re:^(model\\.)?(.*\\.)*(.*_proj)$",
    "re:(.*)*(.*)*(.*)*z",
    "[",
    "[!",
    "\u0000",
    "\ud800",
    "\u202e",
    "é" * 300,
    "a" * 5000,
    ".",
    "..",
    [],
    {},
    [[]],
    [None],
    [1, "a", {}],
    {"a": None},
    {"quant_algo": []},
    [["model.layers.0"]],
    {"": {}},
    "FP8",
    "NVFP4",
    [128, 128],
    [0, 0],
    [-1, 128],
)


@dataclass(slots=True)
class Outcome:
    """How one mutated checkpoint ended: ``code`` of a BitlaneError, ``ok``, or what should not happen."""

    seed: int
    code: str
    seconds: float
    trace: str = ""


class _HangError(BaseException):
    """The alarm rang; no handler for ordinary exceptions may swallow it."""


def _ring(number: int, frame: FrameType | None) -> None:
    raise _HangError


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value inside a JSON value."""
    out = [path] if path else []
    if isinstance(value, dict):
        for key, inner in value.items():
            out += _places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:40]):
            out += _places(inner, (*path, index))
    return out


def _parent(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path[:-1]:
        value = value[step]
    return value


def _nasty(rng: random.Random) -> Any:
    if rng.random() < 0.02:
        deep: Any = "x"
        for _ in range(rng.choice([5, 60, 400])):
            deep = [deep] if rng.random() < 0.5 else {"quantization_config": deep}
        return deep
    return copy.deepcopy(rng.choice(_NASTY))


def mutate(rng: random.Random, value: Any) -> None:
    """Change a JSON object in place, once."""
    places = _places(value)
    if not places:
        value["x"] = _nasty(rng)
        return
    quantization = [
        p for p in places if "quantization" in str(p[0]) or "exclude" in str(p) or p[0] in ("producer", "config_groups")
    ]
    path = rng.choice(quantization if quantization and rng.random() < 0.75 else places)
    holder, key = _parent(value, path), path[-1]
    draw = rng.random()
    if draw < 0.5:
        holder[key] = _nasty(rng)
    elif draw < 0.65:
        del holder[key]
    elif draw < 0.8:
        other = _parent(value, rng.choice(places))
        holder[key] = copy.deepcopy(other) if len(json.dumps(other, default=str)) < 20_000 else _nasty(rng)
    elif isinstance(holder, dict):
        fresh = _nasty(rng)
        name = (
            fresh
            if isinstance(fresh, str)
            else rng.choice(
                ["quant_method", "quant_algo", "ignore", "quantization", "format", "dynamic", "text_config"]
            )
        )
        holder[name] = holder.pop(key) if rng.random() < 0.5 else _nasty(rng)
    else:
        holder.insert(rng.randrange(len(holder) + 1), _nasty(rng))


def _scrambled(rng: random.Random, data: bytes) -> bytes:
    """Damage the text of a file."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 3])):
        if not out:
            break
        at = rng.randrange(len(out))
        draw = rng.random()
        if draw < 0.4:
            out[at] = rng.randrange(256)
        elif draw < 0.7:
            del out[at : at + rng.choice([1, 1, 5])]
        else:
            out[at:at] = rng.choice(
                [b'"', b"{", b"[", b",", b"null", b"Infinity", b"NaN", b"\\u0000", b"9" * 400, b"\xff"]
            )
    return bytes(out)


def checkpoint(seed: int) -> dict[str, bytes]:
    """Return the files of one mutated checkpoint."""
    rng = random.Random(seed)
    _, config, beside = case(rng.randrange(40_000), base=rng.choice(SMALL))
    files = {"config.json": config, **({"hf_quant_config.json": beside} if beside is not None else {})}
    try:
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3, 6])):
            mutate(rng, files[rng.choice(sorted(files))])
        out = {name: json.dumps(value).encode() for name, value in files.items()}
    except RecursionError:  # deep values inside deep values: more than can be written here
        out = {"config.json": b'{"quantization_config": ' * 2_000 + b"1" + b"}" * 2_000}
    if rng.random() < 0.08:
        name = rng.choice(sorted(out))
        out[name] = _scrambled(rng, out[name])
    return out


def run(seed: int, lib: library.Library) -> Outcome:
    """Resolve one mutated checkpoint and write its JSON, under an alarm."""
    files = checkpoint(seed)
    loader = LOADERS[seed % len(LOADERS)]
    started = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    code, trace = "ok", ""
    try:
        opened = Checkpoint("<fuzz>", None, {n: parse_json(d, n) for n, d in files.items()})
        json.dumps(resolve_with(lib, opened, loader, "gb200").to_dict())
    except BitlaneError as error:
        code = error.code
        str(error).encode("utf-8", "backslashreplace")
    except _HangError:
        code, trace = "hang", traceback.format_exc(limit=-6)
    except Exception as error:  # the one thing that must not happen
        code, trace = type(error).__name__, traceback.format_exc(limit=-6)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return Outcome(seed, code, time.perf_counter() - started, trace)


def campaign(count: int, first: int = 0, show: int = 20) -> tuple[Counter[str], list[Outcome], list[Outcome]]:
    """Run many; return the outcomes by code, the failures, and the slowest runs."""
    signal.signal(signal.SIGALRM, _ring)
    bases()
    lib = library.find()
    codes: Counter[str] = Counter()
    failures: list[Outcome] = []
    slowest: list[Outcome] = []
    for seed in range(first, first + count):
        outcome = run(seed, lib)
        codes[outcome.code] += 1
        if outcome.trace and len(failures) < show:
            failures.append(outcome)
        slowest = sorted([*slowest, outcome], key=lambda o: -o.seconds)[:5]
    return codes, failures, slowest


def main(arguments: list[str]) -> int:
    """Run the campaign that the arguments ask for."""
    count = int(arguments[0]) if arguments else 10_000
    first = int(arguments[1]) if len(arguments) > 1 else 0
    started = time.perf_counter()
    codes, failures, slowest = campaign(count, first)
    for failure in failures:
        print(f"seed {failure.seed}: {failure.code}\n{failure.trace}")
    print(f"{count} mutated checkpoints in {time.perf_counter() - started:.0f} s: {dict(codes.most_common())}")
    print("slowest:", ", ".join(f"seed {o.seed} {o.seconds * 1000:.0f} ms ({o.code})" for o in slowest))
    bad = sum(n for code, n in codes.items() if not code.startswith("BL") and code != "ok")
    print(f"{bad} unexpected")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
