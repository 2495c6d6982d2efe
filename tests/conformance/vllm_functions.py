"""The matching functions of vLLM alone, against bitlane's rules: no model is built.

Run with a Python that has vLLM (and nothing else of ours: bitlane is not imported on that side)::

    python tests/conformance/vllm_functions.py corpus tests/data/vllm_functions.jsonl.gz 104000
    python tests/conformance/vllm_functions.py pairs 1000000 --python PYTHON_WITH_VLLM

``corpus`` writes questions with the real functions' answers; ``pairs`` asks both sides and prints what differs.
Each answer is one character per name: ``x`` means that the loader refuses.
"""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

JSON = dict[str, Any]

PACKED: list[dict[str, list[str]]] = [
    {"qkv_proj": ["q_proj", "k_proj", "v_proj"], "gate_up_proj": ["gate_proj", "up_proj"]},
    {"qkv_proj": ["q_proj", "k_proj", "v_proj"]},
    {},
    {
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
        "in_proj_qkvz": ["in_proj_qkv", "in_proj_z"],
        "in_proj_ba": ["in_proj_b", "in_proj_a"],
    },
    {"gate_up_proj": ["gate_proj", "up_proj"], "fused_qkv_a_proj": ["q_a_proj", "kv_a_proj_with_mqa"]},
]
_LEAVES = [
    "self_attn.qkv_proj",
    "self_attn.o_proj",
    "mlp.gate_up_proj",
    "mlp.down_proj",
    "mlp.gate",
    "mlp.experts",
    "mlp.shared_experts.gate_up_proj",
    "mlp.shared_experts.down_proj",
    "linear_attn.in_proj_qkvz",
    "linear_attn.in_proj_ba",
    "linear_attn.out_proj",
    "self_attn.fused_qkv_a_proj",
    "self_attn.q_b_proj",
    "mixer.in_proj",
    "self_attn.index_qkv_proj",
    "block_sparse_moe.experts",
    "mixer.conv1d",
]
_SHARDS = [
    "q_proj",
    "k_proj",
    "v_proj",
    "gate_proj",
    "up_proj",
    "in_proj_qkv",
    "in_proj_z",
    "in_proj_b",
    "in_proj_a",
    "q_a_proj",
    "kv_a_proj_with_mqa",
]
_PREFIXES = ["model.", "model.", "language_model.model.", "model.language_model.", "backbone.", ""]
_CLASSES = [
    "ColumnParallelLinear",
    "RowParallelLinear",
    "QKVParallelLinear",
    "MergedColumnParallelLinear",
    "ReplicatedLinear",
]
_WORDS = ["FP8", "NVFP4", "W4A16_NVFP4", "MXFP8"]
FUNCTIONS = [
    "skip",
    "excluded",
    "algo",
    "ignore",
    "target",
    "dynamic",
    "blocks",
    "substring",
    "quark_ignore",
    "quark_config",
]


def names() -> list[str]:
    """Every module name that questions ask about."""
    out = [f"{p}layers.{n}.{leaf}" for p in dict.fromkeys(_PREFIXES) for n in (0, 1, 2, 10, 11) for leaf in _LEAVES]
    return [*out, "lm_head", "language_model.lm_head", "model.vision.blocks.0.attn.qkv_proj"]


_NAMES = names()
_INDEX = {n: i for i, n in enumerate(_NAMES)}


def _spelled(rng: random.Random, near: list[str]) -> str:
    """A name as a checkpoint may list it: fused or by shard, whole, cut or wrong."""
    name = rng.choice(near if rng.random() < 0.9 else _NAMES)
    if rng.random() < 0.5:
        parent, _, leaf = name.rpartition(".")
        shards = next((s for p in PACKED for f, s in p.items() if f == leaf), None)
        if shards:
            name = f"{parent}.{rng.choice(shards)}"
        elif leaf == "experts":
            name = f"{name}.{rng.choice([0, 0, 1])}.{rng.choice(['gate_proj', 'up_proj', 'down_proj'])}"
    draw = rng.random()
    parts = name.split(".")
    if draw < 0.12:
        return ".".join(parts[: rng.randrange(1, len(parts) + 1)])
    if draw < 0.2:
        return ".".join(parts[-rng.randrange(1, len(parts) + 1) :])
    return name


def _regex(rng: random.Random, near: list[str]) -> str:
    name = _spelled(rng, near)
    leaf = name.rpartition(".")[2]
    return "re:" + rng.choice(
        [
            f".*{leaf}$",
            f".*{leaf}",
            name.replace(".", "\\."),
            name,
            ".*self_attn.*",
            ".*mlp\\.(gate|up|gate_up|down)_proj.*",
            ".*(q|k|v)_proj$",
            f"^(?!.*{rng.choice(['experts', 'mlp', 'layers.1'])}).*$",
            ".*layers\\.(0|1)\\..*",
            ".*layers\\.[0-1]\\..*",
            "model.*",
            ".*experts(?!.*shared).*",
            f".*\\.{leaf}",
        ]
    )


def _glob(rng: random.Random, near: list[str]) -> str:
    name = _spelled(rng, near)
    forms = [
        f"{name}*",
        f"{name}.*",
        f"*{name}",
        f"*.{name}",
        f"*{name}*",
        name.replace(".0.", ".*."),
        name.replace(".1.", ".[0-2]."),
        name.replace("layers.", "layers.?"),
        "*",
    ]
    return rng.choice(forms)


def _parent_shards(rng: random.Random, near: list[str]) -> list[str]:
    name = rng.choice(near)
    parent, _, leaf = name.rpartition(".")
    shards = next((s for p in PACKED for f, s in p.items() if f == leaf), [leaf])
    keep = len(shards) if rng.random() < 0.7 else rng.randrange(1, len(shards) + 1)
    return [f"{parent}.{s}" for s in shards[:keep]]


def _entries(rng: random.Random, dialect: str, near: list[str]) -> list[str]:
    out: list[str] = []
    for _ in range(rng.randrange(1, 9)):
        draw = rng.random()
        if draw < 0.25:
            out += _parent_shards(rng, near)
        elif draw < 0.55 or dialect == "plain":
            out.append(_spelled(rng, near))
        else:
            out.append(_glob(rng, near) if dialect == "glob" else _regex(rng, near))
    return out


def questions(seed: int, pairs: int, each: int = 40) -> Iterator[JSON]:
    """Yield questions with about ``pairs`` names in all; deterministic."""
    rng = random.Random(seed)
    asked = 0
    while asked < pairs:
        function = rng.choice(FUNCTIONS)
        prefix, layers = rng.choice(_PREFIXES), rng.sample(["0.", "1.", "2.", "10.", "11."], 2)
        near = [n for n in _NAMES if any(n.startswith(f"{prefix}layers.{x}") for x in layers)]
        packed = rng.randrange(len(PACKED))
        entries: Any
        if function in ("skip", "blocks", "substring"):
            entries = _entries(rng, "plain", near)
        elif function == "excluded":
            entries = _entries(rng, "glob", near)
        elif function in ("ignore", "quark_ignore"):
            entries = _entries(rng, "regex", near)
        elif function == "target":
            entries = [
                _entries(rng, "regex", near)
                if rng.random() < 0.8
                else [rng.choice(["Linear", "RowParallel", "qkv", "Linear"])]
                for _ in range(rng.choice([1, 2, 3]))
            ]
        elif function == "algo":
            entries = {}
            for _ in range(rng.randrange(1, 8)):
                entries.update(dict.fromkeys(_entries(rng, "plain", near), rng.choice(_WORDS)))
        elif function == "dynamic":
            entries = {
                rng.choice(["-:", "+:", ""]) + _regex(rng, near)[3:]: rng.choice([{}, {"bits": 8}, {"bits": 4}])
                for _ in range(rng.randrange(1, 4))
            }
        else:
            entries = {
                _glob(rng, near) if rng.random() < 0.6 else _spelled(rng, near): rng.randrange(3)
                for _ in range(rng.randrange(0, 4))
            }
        # Mostly names that the entries are about, and some from elsewhere.
        pool = [_INDEX[n] for n in near]
        chosen = sorted({*rng.sample(pool, min(len(pool), each - 8)), *rng.sample(range(len(_NAMES)), 8)})
        asked += len(chosen)
        yield {"f": function, "p": packed, "e": entries, "n": chosen}


# --- the real functions ---------------------------------------------------------


def _ask(question: Callable[[str], str], chosen: list[int]) -> str:
    out = []
    for index in chosen:
        try:
            out.append(question(_NAMES[index]))
        except (ValueError, KeyError, RuntimeError):
            out.append("x")
    return "".join(out)


def theirs(found: list[JSON]) -> list[str]:
    """Answer with vLLM's own functions."""
    from vllm.model_executor.layers.quantization.compressed_tensors import utils as ct
    from vllm.model_executor.layers.quantization.modelopt import ModelOptMixedPrecisionConfig, ModelOptNvFp4Config
    from vllm.model_executor.layers.quantization.quark import utils as quark
    from vllm.model_executor.layers.quantization.quark.quark import QuarkConfig
    from vllm.model_executor.layers.quantization.utils import gptq_utils
    from vllm.model_executor.layers.quantization.utils.quant_utils import is_layer_skipped

    def answer(q: JSON) -> str:
        packed, entries = PACKED[q["p"]], q["e"]
        flag = lambda value: "1" if value else "0"  # noqa: E731
        if q["f"] == "skip":
            return _ask(lambda n: flag(is_layer_skipped(n, entries, packed)), q["n"])
        if q["f"] == "substring":
            return _ask(lambda n: flag(is_layer_skipped(n, entries, packed, match_mode="substring")), q["n"])
        if q["f"] == "blocks":
            return _ask(lambda n: flag(not gptq_utils.is_layer_gptq_quantized(n, entries, packed)), q["n"])
        if q["f"] == "excluded":
            config = object.__new__(ModelOptNvFp4Config)
            config.exclude_modules, config.packed_modules_mapping = entries, packed
            return _ask(lambda n: flag(config.is_layer_excluded(n)), q["n"])
        if q["f"] == "algo":
            mixed = object.__new__(ModelOptMixedPrecisionConfig)
            mixed.quantized_layers, mixed.packed_modules_mapping = (
                {k: {"quant_algo": w} for k, w in entries.items()},
                packed,
            )

            def word(name: str) -> str:
                said = mixed._resolve_quant_algo(name)
                return "-" if said is None else str(_WORDS.index(said))

            return _ask(word, q["n"])
        if q["f"] == "ignore":
            return _ask(lambda n: flag(ct.should_ignore_layer(n, ignore=entries, fused_mapping=packed)), q["n"])
        if q["f"] == "quark_ignore":
            return _ask(
                lambda n: flag(
                    quark.should_ignore_layer(
                        n, ignore=entries, fused_mapping=packed, check_children=n.endswith("experts")
                    )
                ),
                q["n"],
            )
        if q["f"] == "target":
            order: dict[str, int] = {}
            for number, group in enumerate(entries):
                for target in group:
                    order[target] = number

            def group_of(name: str) -> str:
                module = type(_class(name), (), {})()
                target = ct.find_matched_target(name, module, order.keys(), packed)
                return "-" if target is None else str(order[target])

            return _ask(group_of, q["n"])
        if q["f"] == "dynamic":
            config = type("Config", (), {"dynamic": entries})()

            def bits(name: str) -> str:
                if gptq_utils.get_dynamic_override(config, layer_name=name) is False:
                    return "-"
                return str(gptq_utils.get_dynamic_override(config, name, "bits", 4))

            return _ask(bits, q["n"])
        quark_config = object.__new__(QuarkConfig)
        quark_config.packed_modules_mapping = packed
        quark_config.quant_config = {
            "layer_quant_config": {k: {"s": v} for k, v in entries.items()},
            "layer_type_quant_config": {},
            "global_quant_config": {"s": 3},
        }
        return _ask(lambda n: str(quark_config._find_matched_config(n, object)["s"]), q["n"])

    return [answer(q) for q in found]


def _class(name: str) -> str:
    """The class that a module of this name has in these questions."""
    leaf = name.rpartition(".")[2]
    known = {"qkv_proj": 2, "gate_up_proj": 3, "down_proj": 1, "o_proj": 1, "gate": 4}
    return _CLASSES[known.get(leaf, len(leaf) % len(_CLASSES))]


# --- bitlane's rules --------------------------------------------------------------

_FP8 = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
_TOKEN = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": True, "strategy": "token"}
_GROUPS: list[tuple[JSON, JSON | None, str, str]] = [
    ({**_FP8, "strategy": "channel"}, _TOKEN, "float-quantized", "fp8_pc_pt"),
    ({**_FP8, "strategy": "tensor"}, {**_FP8, "strategy": "tensor"}, "float-quantized", "fp8"),
    (
        {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": True},
        None,
        "nvfp4-pack-quantized",
        "w4a16_nvfp4",
    ),
]
_QUARK: list[tuple[JSON, JSON | None, str]] = [
    (
        {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False},
        {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False},
        "fp8",
    ),
    (
        {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0", "is_dynamic": False},
        None,
        "mxfp4",
    ),
    (
        {"dtype": "int8", "qscheme": "per_channel", "symmetric": True, "is_dynamic": False},
        {"dtype": "int8", "qscheme": "per_channel", "is_dynamic": True},
        "int8",
    ),
    (
        {"dtype": "int4", "qscheme": "per_group", "group_size": 128, "symmetric": True, "is_dynamic": False},
        None,
        "int4_wo",
    ),
]


def _checkpoint(q: JSON) -> tuple[JSON, dict[str, str]]:
    """Metadata that makes bitlane answer the question, and the character of each algorithm."""
    entries = q["e"]
    match q["f"]:
        case "skip":
            return {"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": entries}, {
                "bf16": "1",
                "fp8": "0",
            }
        case "substring":
            return {
                "quant_method": "awq",
                "bits": 4,
                "group_size": 128,
                "zero_point": True,
                "lm_head": True,
                "modules_to_not_convert": entries,
            }, {"bf16": "1", "int4_wo": "0"}
        case "blocks":
            return {
                "quant_method": "gptq",
                "bits": 4,
                "group_size": 128,
                "desc_act": False,
                "sym": True,
                "lm_head": True,
                "modules_in_block_to_quantize": entries,
            }, {"bf16": "1", "int4_wo": "0"}
        case "excluded":
            return {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": entries}, {"bf16": "1", "nvfp4": "0"}
        case "algo":
            words = {"fp8": "0", "nvfp4": "1", "w4a16_nvfp4": "2", "mxfp8": "3", "bf16": "-"}
            listing = {k: {"quant_algo": w} for k, w in entries.items()}
            return {
                "quant_method": "modelopt",
                "quant_algo": "MIXED_PRECISION",
                "quantized_layers": listing,
                "ignore": [],
            }, words
        case "ignore":
            return _compressed([["Linear", "lm_head", "language_model.lm_head"]], entries), {
                "bf16": "1",
                "fp8_pc_pt": "0",
            }
        case "target":
            return _compressed(entries, []), {"bf16": "-", **{a: str(n) for n, (_, _, _, a) in enumerate(_GROUPS)}}
        case "dynamic":
            return {
                "quant_method": "gptq",
                "bits": 4,
                "group_size": 128,
                "desc_act": False,
                "sym": True,
                "lm_head": True,
                "dynamic": entries,
            }, {"bf16": "-", "int4_wo": "4", "int8_wo": "8"}
        case _:
            quark = [{"weight": w, "input_tensors": a} for w, a, _ in _QUARK]
            excluded = entries if q["f"] == "quark_ignore" else []
            layers = {} if q["f"] == "quark_ignore" else {k: quark[v] for k, v in entries.items()}
            block = {
                "quant_method": "quark",
                "export": {"kv_cache_group": [], "pack_method": "reorder"},
                "exclude": excluded,
                "layer_quant_config": layers,
                "layer_type_quant_config": {},
                "global_quant_config": quark[3],
            }
            words = (
                {"bf16": "1", "int4_wo": "0"}
                if q["f"] == "quark_ignore"
                else {a: str(n) for n, (_, _, a) in enumerate(_QUARK)}
            )
            return block, words


def _compressed(targets: list[list[str]], ignore: list[str]) -> JSON:
    groups = {
        f"group_{n}": {
            "targets": t,
            "weights": _GROUPS[n][0],
            "input_activations": _GROUPS[n][1],
            "format": _GROUPS[n][2],
        }
        for n, t in enumerate(targets)
    }
    return {
        "quant_method": "compressed-tensors",
        "format": "mixed-precision",
        "config_groups": groups,
        "ignore": ignore,
    }


def ours(found: list[JSON], version: str) -> list[str]:
    """Answer with the rules."""
    from bitlane.errors import CheckpointError
    from bitlane.resolver.checkpoint import from_dicts
    from bitlane.resolver.decide import Chooser
    from bitlane.resolver.declarations import declarations
    from bitlane.resolver.loader import compile_loader
    from bitlane.resolver.modules import Member, Module
    from bitlane.resolver.naming import Mapper
    from bitlane.resolver.reading import read
    from bitlane.rules import library

    loader = compile_loader(library.find(), "vllm", version)
    member = (Member("x", 4096, 4096, "column"),)
    built = []
    for name in _NAMES:
        kind = "lm_head" if name.endswith("lm_head") else "linear"
        built.append(Module(name, (name,), kind, _class(name), "x", members=member))

    def answer(q: JSON) -> str:
        block, words = _checkpoint(q)
        reading = read(
            loader, from_dicts({"config.json": {"architectures": ["X"], "quantization_config": block}}), {"sm": 100}
        )
        packed = {k: tuple(v) for k, v in PACKED[q["p"]].items()}
        chooser = Chooser(reading, declarations(reading, Mapper()), packed)
        out = []
        for index in q["n"]:
            module = built[index]
            if module.kind == "lm_head" and q["f"] in ("skip", "quark_ignore", "quark_config"):
                out.append("?")  # these formats never reach the head
                continue
            if q["f"] == "quark_ignore" and module.path.endswith("experts"):
                module = Module(
                    module.path,
                    module.checkpoint,
                    "experts",
                    "RoutedExperts",
                    "x",
                    attributes={"count": 8, "hidden": 4096, "inter": 4096},
                )
            try:
                out.append(words[chooser.decide(module).algorithm])
            except CheckpointError:
                out.append("x")
        return "".join(out)

    return [answer(q) for q in found]


# --- comparing ---------------------------------------------------------------------


def differences(found: list[JSON], real: list[str], mine: list[str]) -> tuple[int, list[str]]:
    """Return how many answers were compared and one line for each that differs."""
    compared, out = 0, []
    for q, a, b in zip(found, real, mine, strict=True):
        for index, one, other in zip(q["n"], a, b, strict=True):
            if other == "?":
                continue
            compared += 1
            if one != other:
                out.append(
                    f"{q['f']} {_NAMES[index]}: vllm {one}, bitlane {other}; packed {q['p']}; "
                    f"{json.dumps(q['e'])[:300]}"
                )
    return compared, out


def write_corpus(path: Path, pairs: int, version: str) -> None:
    """Write questions with the real answers, one JSON object a line."""
    found = list(questions(1, pairs))
    lines = [
        json.dumps(
            {"vllm": version, "names": len(_NAMES), "command": "python tests/conformance/vllm_functions.py corpus"}
        )
    ]
    lines += [json.dumps({**q, "a": a}, separators=(",", ":")) for q, a in zip(found, theirs(found), strict=True)]
    path.write_bytes(gzip.compress("\n".join(lines).encode(), 9, mtime=0))


def read_corpus(path: Path) -> tuple[JSON, list[JSON], list[str]]:
    """Return the corpus's head, its questions and the real answers."""
    head, *rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    if head["names"] != len(_NAMES):
        raise ValueError("the corpus was written for other names: write it anew")
    return head, rows, [row["a"] for row in rows]


def real_answers(python: str, seed: int, pairs: int) -> tuple[str, list[str]]:
    """Ask another Python that has vLLM; return its vLLM version and answers."""
    done = subprocess.run(
        [python, __file__, "answers", str(seed), str(pairs)], capture_output=True, text=True, check=True
    )
    version, *rows = done.stdout.splitlines()[-1].split("\t")
    return version, rows


def main(arguments: list[str]) -> int:
    """Run one of the commands in the module's docstring."""
    command = arguments[0]
    if command in ("corpus", "answers"):
        import vllm

        if command == "corpus":
            write_corpus(Path(arguments[1]), int(arguments[2]), vllm.__version__)
            return 0
        found = list(questions(int(arguments[1]), int(arguments[2])))
        print("\n" + "\t".join([vllm.__version__, *theirs(found)]))
        return 0
    pairs, python = int(arguments[1]), arguments[arguments.index("--python") + 1]
    total, bad, seed = 0, Counter[str](), 1000
    while total < pairs:
        size = min(100_000, pairs - total)
        version, real = real_answers(python, seed, size)
        found = list(questions(seed, size))
        _, lines = differences(found, real, ours(found, version))
        for line in lines[:5]:
            print(line)
        bad.update(line.split()[0] for line in lines)
        total += sum(len(q["n"]) for q in found)
        seed += 1
    print(f"{total} pairs against vLLM {version}, {sum(bad.values())} differ {dict(bad)}")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
