"""Generated metadata of NVIDIA ModelOpt: uniform and mixed, flat and nested, in one file, in two, and at odds."""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from names import Pen

JSON = dict[str, Any]

ALGOS = ("FP8", "NVFP4", "W4A16_NVFP4", "MXFP8", "FP8_PB_WO", "FP8_PER_CHANNEL_PER_TOKEN")
_ODD = (
    "INT4_AWQ",
    "FP8_BLOCK_SCALES",
    "NVFP4_AWQ",
    "W4A8_AWQ",
    "fp8",
    "nvfp4",
    "Fp8_Pb_Wo",
    "mxfp8",
    "W8A8_SQ_PER_CHANNEL",
    "W4A8_NVFP4_FP8",
    "NONE",
    "",
)
_PREFIXES = (
    "backbone.",
    "transformer.",
    "model.model.",
    "language_model.model.",
    "model.language_model.",
    "language_model.",
    "",
)
_HEAD = re.compile(r"^(model\.language_model|language_model\.model|language_model|backbone|model)\.")


def _entry(pen: Pen, word: str) -> JSON:
    r = pen.rng
    out: JSON = {"quant_algo": word}
    size = {"NVFP4": 16, "W4A16_NVFP4": 16, "MXFP8": 32}.get(word.upper())
    if size and r.random() < 0.85:
        out["group_size"] = size
    if word.upper() in ("FP8_PB_WO", "FP8_BLOCK_SCALES") and r.random() < 0.3:
        out["group_size"] = 128
    return out


def _class(name: str) -> str:
    if "experts" in name and "shared" not in name:
        return "experts"
    if "shared_expert" in name and not name.endswith("_gate"):
        return "shared"
    if re.search(r"(attn|mixer)\.", name):
        return "attn"
    if re.search(r"(gate|router|router\.proj|shared_expert_gate)$", name):
        return "gate"
    return "mlp" if "mlp" in name or "ffn" in name else "rest"


def full(pen: Pen) -> JSON:
    """Every layer listed, one algorithm per class of module, as real exports have it, then damaged."""
    r = pen.rng
    n = pen.names
    words = {k: r.choice((*ALGOS, *ALGOS, None)) for k in ("attn", "mlp", "shared", "experts", "rest")}
    if r.random() < 0.15:
        words["gate"] = r.choice(ALGOS)
    if r.random() < 0.08:
        words[r.choice(tuple(words))] = r.choice(_ODD)
    as_leaves = r.random()
    out: JSON = {}
    names = list(pen.text)
    for home in n.experts:
        if as_leaves < 0.45:
            names.append(home)
        elif as_leaves < 0.9:
            names += [f"{home}.{i}.{x}" for i in range(n.count) for x in n.leaves]
        else:
            names += [f"{home}.{r.choice(('gate_up_proj', 'down_proj', 'w13', '0', 'up_proj'))}"]
    if r.random() < 0.5:
        names.append(r.choice(("lm_head", "lm_head", "model.lm_head", "language_model.lm_head")))
        words["lm_head"] = r.choice(ALGOS)
    if r.random() < 0.25:
        r.shuffle(names)
    for name in names:
        word = words.get("lm_head" if name.endswith("lm_head") else _class(name))
        if word is not None:
            out[name] = _entry(pen, word)
    return out


def damage(pen: Pen, listing: JSON) -> JSON:
    """Take away, misspell, add and contradict."""
    r = pen.rng
    out = dict(listing)
    keys = list(out)
    if r.random() < 0.3 and keys:
        for key in r.sample(keys, min(len(keys), r.choice((1, 1, 2, 5)))):
            out.pop(key, None)
    if r.random() < 0.2 and out:
        key, word = r.choice(list(out)), r.choice((*ALGOS, *_ODD))
        out.update({k: _entry(pen, word) for k in ((pen.siblings(key) if pen.careful else []) or [key])})
    if r.random() < 0.12:
        new = r.choice(_PREFIXES)
        out = {(new + _HEAD.sub("", k) if r.random() < 0.9 else k): v for k, v in out.items()}
    elif r.random() < 0.08:
        out = {(r.choice(_PREFIXES) + _HEAD.sub("", k)): v for k, v in out.items()}
    if r.random() < 0.1:
        out = {k + ".weight": v for k, v in out.items()}
    if r.random() < 0.08:
        out = {k: {**v, "quant_algo": v["quant_algo"].lower()} for k, v in out.items()}
    for _ in range(r.choice((0, 0, 0, 1, 2))):
        name = pen.name()
        out[r.choice((name, pen.odd(name), pen.wild(name)))] = _entry(pen, r.choice(ALGOS))
    if r.random() < 0.05 and out:
        out[r.choice(list(out))] = r.choice(
            (
                {},
                {"quant_algo": None},
                {"quant_algo": ""},
                {"group_size": 16},
                {"quant_algo": "FP8", "group_size": None},
            )
        )
    if r.random() < 0.05 and out:
        last = list(out)[-1]
        out = {last: out[last], **out}
    return out


def sparse(pen: Pen) -> JSON:
    """A few entries, drawn one by one."""
    r = pen.rng
    few = r.sample((*ALGOS, *_ODD), r.choice((1, 1, 2, 3)))
    out: JSON = {}
    for _ in range(r.randrange(1, 12)):
        word = r.choice(few)
        name = pen.name()
        for key in (pen.siblings(name) or [name]) if r.random() < 0.5 else [name]:
            if r.random() < 0.9:
                out[key] = _entry(pen, word)
    return out


def listing(pen: Pen) -> JSON:
    """The value of ``quantized_layers``."""
    return damage(pen, full(pen) if pen.rng.random() < 0.7 else sparse(pen))


def _groups(pen: Pen) -> JSON:
    r = pen.rng
    four = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16}
    acts = r.choice((four, four, None, {}))
    out = {"group_0": {"input_activations": acts, "weights": four, "targets": ["Linear"]}}
    if r.random() < 0.2:
        out["group_1"] = {"input_activations": r.choice((four, None)), "weights": four, "targets": pen.exclusions(2)}
    return out if r.random() < 0.95 else {}


def _flat(pen: Pen, algo: str) -> JSON:
    r = pen.rng
    out: JSON = {"quant_algo": algo, "quant_method": "modelopt"}
    if "MIXED" not in algo and r.random() < 0.9:
        out["ignore"] = pen.exclusions()
    if "FP4" in algo.upper() and r.random() < 0.85:
        out["group_size"] = 16
    if "FP4" in algo.upper() and r.random() < 0.5:
        out["config_groups"] = _groups(pen)
    if r.random() < 0.2:
        out["kv_cache_scheme"] = {"dynamic": False, "num_bits": 8, "type": "float"}
    if r.random() < 0.1:
        out["producer"] = r.choice(({"name": "modelopt", "version": "0.43.0"}, {"name": "other", "version": "1"}))
    return out


def _inner(pen: Pen, algo: str) -> JSON:
    r = pen.rng
    out: JSON = {
        "quant_algo": algo,
        "kv_cache_quant_algo": r.choice((None, "FP8")),
        "exclude_modules": pen.exclusions(),
    }
    if "FP4" in algo.upper():
        out["group_size"] = 16
    return out


def _nested(pen: Pen, inner: JSON) -> JSON:
    r = pen.rng
    out: JSON = {"quantization": inner}
    if r.random() < 0.85:
        out["producer"] = {"name": "modelopt" if r.random() < 0.95 else "ModelOpt", "version": "0.43.0"}
    elif r.random() < 0.4:
        inner["modelopt_quant_config"] = {"x": 1}
    return out


def _word(pen: Pen) -> str:
    r = pen.rng
    return r.choice((*ALGOS * 4, "nvfp4", "fp8", "w4a16_nvfp4", "mxfp8", "NVFP4_AWQ", "W4A8_AWQ", "FP8_BLOCK_SCALES"))


def uniform(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """One algorithm with an exclusion list."""
    r = pen.rng
    algo = _word(pen)
    flat = _flat(pen, algo)
    draw = r.random()
    if draw < 0.55:
        flat["quant_method"] = r.choice(
            ("modelopt",) * 8 + ("ModelOpt", "modelopt_fp4", "modelopt_fp8", "modelopt_mxfp8")
        )
        if r.random() < 0.06:
            flat["exclude_modules"] = flat.pop("ignore", [])
        return flat, None
    inner = _inner(pen, algo)
    if r.random() < 0.15:
        inner.pop(r.choice(list(inner)))
    nested = _nested(pen, inner)
    if draw < 0.85:
        return None, nested
    if draw < 0.95:
        return {"quant_method": "modelopt", **nested}, None
    return nested, None


def mixed_flat(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """MIXED_PRECISION, self-contained in config.json."""
    r = pen.rng
    out = _flat(pen, "MIXED_PRECISION" if r.random() < 0.97 else "mixed_precision")
    out["quant_method"] = r.choice(("modelopt",) * 6 + ("modelopt_mixed", "ModelOpt"))
    out["quantized_layers"] = listing(pen)
    if r.random() < 0.65:
        out["ignore"] = pen.exclusions() if r.random() < 0.7 else []
    if r.random() < 0.05:
        out["exclude_modules"] = pen.exclusions()
    if r.random() < 0.1:
        out["group_size"] = r.choice((16, 32, 128))
    if r.random() < 0.15:
        out["config_groups"] = _groups(pen)
    return out, None


def mixed_nested(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """MIXED_PRECISION whose listing stands in hf_quant_config.json, or is nested where it is not found."""
    r = pen.rng
    inner = _inner(pen, "MIXED_PRECISION")
    inner["quantized_layers"] = listing(pen)
    if r.random() < 0.5:
        inner["exclude_modules"] = []
    nested = _nested(pen, inner)
    flat = _flat(pen, "MIXED_PRECISION")
    flat["ignore"] = pen.exclusions()
    draw = r.random()
    if draw < 0.75:
        return flat, nested
    if draw < 0.82:
        return {"quant_method": "modelopt", **nested}, r.choice((None, nested))
    if draw < 0.88:
        return flat, r.choice((None, inner, {"quant_method": "modelopt", **inner}))
    if draw < 0.94:
        return None, nested
    flat["quantized_layers"] = r.choice(({}, None, [], listing(pen)))
    return flat, nested


def contradictory(pen: Pen, config: JSON) -> tuple[Any, Any]:
    """Two files that disagree, or a block that says nothing beside a file that does."""
    r = pen.rng
    import metadata_compressed as compressed
    import metadata_integers as integers
    import metadata_other as other

    beside = _nested(pen, _inner(pen, _word(pen))) if r.random() < 0.7 else mixed_nested(pen, config)[1]
    draw = r.random()
    if draw < 0.35:
        return _flat(pen, _word(pen)), beside
    if draw < 0.5:
        return mixed_flat(pen, config)[0], beside
    if draw < 0.75:
        return r.choice((other.fp8, compressed.compressed, other.mxfp, integers.gptq))(pen, config)[0], beside
    if draw < 0.85:
        return r.choice(({}, {"quant_method": ""}, {"quant_algo": "FP8"}, {"ignore": ["lm_head"]})), beside
    if draw < 0.92:
        out = _flat(pen, _word(pen))
        out.pop("quant_method")
        return out, beside
    both = copy.deepcopy(beside)
    return ({**both, "quant_method": "modelopt"} if isinstance(both, dict) else both), _nested(
        pen, _inner(pen, _word(pen))
    )
