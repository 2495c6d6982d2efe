"""Metadata that is damaged or made to hurt: an answer or an error with a code, and nothing raw on the terminal."""

from __future__ import annotations

import json
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from bitlane.errors import BitlaneError
from bitlane.resolver.api import resolve
from bitlane.resolver.checkpoint import from_dicts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bitlane.resolver.resolution import Resolution

LOADERS = ("vllm@0.32.0", "vllm@0.24.0", "sglang", "trtllm", "spec")
# Not a measure of speed: far more than any of these needs, and far less than one that backtracks would take.
HANG_S = 60

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 2048,
}
MODELOPT: dict[str, Any] = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}
FP8_ARGS = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, "strategy": "tensor"}
COMPRESSED: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": FP8_ARGS, "input_activations": FP8_ARGS}},
    "ignore": ["lm_head"],
}
MIXED: dict[str, Any] = {
    "quant_method": "modelopt",
    "quant_algo": "MIXED_PRECISION",
    "quantized_layers": {"model.layers.0.mlp.down_proj": {"quant_algo": "FP8"}},
    "ignore": [],
}
QUARK_FP8 = {"dtype": "fp8_e4m3", "qscheme": "per_tensor", "is_dynamic": False}
QUARK: dict[str, Any] = {
    "quant_method": "quark",
    "export": {"kv_cache_group": [], "pack_method": "reorder"},
    "exclude": ["lm_head"],
    "layer_quant_config": {},
    "layer_type_quant_config": {},
    "global_quant_config": {"weight": QUARK_FP8, "input_tensors": QUARK_FP8, "output_tensors": None, "bias": None},
}
GPTQ: dict[str, Any] = {
    "quant_method": "gptq",
    "bits": 4,
    "group_size": 128,
    "desc_act": False,
    "sym": True,
    "dynamic": {},
}
AWQ: dict[str, Any] = {
    "quant_method": "awq",
    "bits": 4,
    "group_size": 128,
    "zero_point": True,
    "modules_to_not_convert": ["mlp.gate"],
}
FP8: dict[str, Any] = {"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": []}
AUTO_ROUND: dict[str, Any] = {
    "quant_method": "auto-round",
    "bits": 4,
    "group_size": 128,
    "sym": True,
    "packing_format": "auto_round:auto_gptq",
    "extra_config": {},
    "block_name_to_quantize": "model.layers",
}
FORMATS = {
    "modelopt": MODELOPT,
    "mixed": MIXED,
    "compressed": COMPRESSED,
    "quark": QUARK,
    "gptq": GPTQ,
    "awq": AWQ,
    "fp8": FP8,
    "auto_round": AUTO_ROUND,
}


@contextmanager
def _bounded() -> Iterator[None]:
    """Turn a hang into a failure."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: object) -> None:
        raise TimeoutError(f"no answer within {HANG_S} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _ends(where: Any, loader: str = "vllm@0.32.0") -> Resolution | BitlaneError:
    """Return the answer, whose JSON must be writable, or the error, whose text must be printable."""
    with _bounded():
        answer: Resolution | BitlaneError
        try:
            answer = resolve(where, loader, "gb200")
            json.loads(json.dumps(answer.to_dict()))
        except BitlaneError as refusal:
            answer = refusal
    if isinstance(answer, BitlaneError):
        assert answer.code.startswith("BL")
        assert all(line.isprintable() for line in str(answer).splitlines()), ascii(str(answer))
    return answer


def _with(block: Any, beside: Any = None, config: dict[str, Any] = LLAMA) -> Any:
    files = {"config.json": {**config, "quantization_config": block}}
    if beside is not None:
        files["hf_quant_config.json"] = beside
    return from_dicts(files)


def _refused(found: Resolution | BitlaneError, *codes: str) -> None:
    assert isinstance(found, BitlaneError), found
    assert found.code in codes, str(found)


# --- files -------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Write ``config.json`` and ``hf_quant_config.json`` from bytes."""

    def make(config: bytes, beside: bytes | None = None) -> Path:
        (tmp_path / "config.json").write_bytes(config)
        if beside is not None:
            (tmp_path / "hf_quant_config.json").write_bytes(beside)
        return tmp_path

    return make


def _inside(inner: bytes) -> bytes:
    return json.dumps(LLAMA).encode()[:-1] + b', "quantization_config": ' + inner + b"}"


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
@pytest.mark.parametrize("closed", [True, False])
def test_two_hundred_thousand_levels(folder: Callable[..., Path], opening: bytes, closing: bytes, closed: bool) -> None:
    deep = opening * 200_000 + b"1" + closing * (200_000 * closed)
    for config, beside in (
        (deep, None),
        (_inside(deep), None),
        (json.dumps(LLAMA).encode(), b'{"quantization": ' + deep + b"}"),
    ):
        _refused(_ends(folder(config, beside)), "BL203", "BL204")


@pytest.mark.parametrize("levels", [40, 70, 300, 900])
def test_fewer_levels_end_too(folder: Callable[..., Path], levels: int) -> None:
    for opening, closing in ((b"[", b"]"), (b'{"quantization_config":', b"}"), (b'{"text_config":', b"}")):
        deep = opening * levels + b"1" + closing * levels
        for loader in LOADERS:
            found = [
                _ends(folder(_inside(deep)), loader),
                _ends(folder(json.dumps({**LLAMA, "text_config": json.loads(deep)}).encode()), loader),
            ]
            if levels > 64:
                for each in found:
                    _refused(each, "BL204")
                with pytest.raises(BitlaneError, match="nested deeper"):
                    _with(json.loads(deep))
            else:
                _ends(_with(json.loads(deep)), loader)


def test_a_file_of_64_mib_is_not_read(folder: Callable[..., Path]) -> None:
    where = folder(json.dumps(LLAMA).encode() + b" " * (64 << 20))
    found = _ends(where)
    _refused(found, "BL202")
    assert "64 MiB" in str(found)
    where = folder(json.dumps(LLAMA).encode())
    with (where / "hf_quant_config.json").open("wb") as file:
        file.truncate(64 << 20)
    _refused(_ends(where), "BL202")


def test_many_entries_of_a_real_size(folder: Callable[..., Path]) -> None:
    names = [f"model.layers.{n}.mlp.experts.{m}.down_proj" for n in range(64) for m in range(256)]
    listing = {name: {"quant_algo": "FP8"} for name in names}
    for block in (
        {**MODELOPT, "ignore": names},
        {**MIXED, "quantized_layers": listing},
        {**COMPRESSED, "ignore": names},
    ):
        assert not isinstance(_ends(folder(_inside(json.dumps(block).encode()))), BitlaneError)


@pytest.mark.parametrize(
    ("data", "codes"),
    [
        (b"", ("BL203",)),
        (b"\x00" * 4096, ("BL203",)),
        (b"\xff\xfe{}", ("BL203",)),
        (b"\xef\xbb\xbf{}", ("BL203",)),
        ("{}".encode("utf-16"), ("BL203",)),
        (b'{"architectures": "\xc3\x28"}', ("BL203",)),
        (b"[]", ("BL203",)),
        (b"null", ("BL203",)),
        (b'"config"', ("BL203",)),
        (b"{", ("BL203",)),
        (b'{"a": 1,}', ("BL203",)),
        (b'{"a": ' + b"9" * 10_000 + b"}", ("BL203",)),
        (b"{'a': 1}", ("BL203",)),
    ],
)
def test_what_is_no_json_object(folder: Callable[..., Path], data: bytes, codes: tuple[str, ...]) -> None:
    _refused(_ends(folder(data)), *codes)
    _refused(_ends(folder(json.dumps(LLAMA).encode(), data)), *codes)


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    assert isinstance(_ends(tmp_path), BitlaneError)


# --- duplicates and numbers -----------------------------------------------------------


def test_of_a_key_held_twice_the_last_counts_and_is_reported(folder: Callable[..., Path]) -> None:
    block = (
        b'{"quant_method": "modelopt", "quant_algo": "NVFP4", "quant_algo": "FP8", "ignore": [], "ignore": ["lm_head"]}'
    )
    for loader in ("vllm@0.32.0", "sglang", "spec"):
        found = _ends(folder(_inside(block)), loader)
        assert not isinstance(found, BitlaneError), found
        assert found["model.layers.0.mlp.down_proj"].answer.algorithm == "fp8"
        assert found["lm_head"].answer.algorithm == "bf16"
        reported = [p for p in found.problems if p.code == "BL292"]
        assert reported
        assert "quant_algo" in str([p.message for p in reported])


@pytest.mark.parametrize(
    "number", ["NaN", "Infinity", "-Infinity", "1e999", "-0.0", "1.5", "-1", "0", "1" * 400, "true", "1e3"]
)
@pytest.mark.parametrize("loader", LOADERS)
def test_numbers_that_are_none(folder: Callable[..., Path], number: str, loader: str) -> None:
    for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size"):
        config = json.dumps({**LLAMA, key: "@"}).replace('"@"', number).encode()
        _ends(folder(config), loader)
    for name, key in (("gptq", "bits"), ("gptq", "group_size"), ("awq", "group_size"), ("auto_round", "bits")):
        _ends(folder(_inside(json.dumps({**FORMATS[name], key: "@"}).replace('"@"', number).encode())), loader)
    for block in ({**FP8, "weight_block_size": ["@", "@"]}, {**MIXED, "group_size": "@"}):
        _ends(folder(_inside(json.dumps(block).replace('"@"', number).encode())), loader)


def test_sizes_that_are_no_sizes_are_refused(folder: Callable[..., Path]) -> None:
    for number in ("NaN", "Infinity", "1.5", "-1", "null", '"512"', "[512]", "{}"):
        config = json.dumps({**LLAMA, "hidden_size": "@"}).replace('"@"', number).encode()
        assert isinstance(_ends(folder(config)), BitlaneError), number


def test_more_layers_than_any_model_has() -> None:
    for count in (2_001, 10**9, 10**30, 10**400):
        _refused(_ends(from_dicts({"config.json": {**LLAMA, "num_hidden_layers": count}})), "BL210", "BL212")
    for key in ("num_attention_heads", "vocab_size", "hidden_size"):
        for count in (10**9, 10**30):
            _ends(from_dicts({"config.json": {**LLAMA, key: count}}))


def test_names_that_forge_lines_or_colours() -> None:
    found = _ends(from_dicts({"config.json": {**LLAMA, "architectures": ["a\nerror[BL999]: forged\x1b[31m"]}}))
    assert isinstance(found, BitlaneError)
    assert "\\nerror[BL999]: forged\\x1b[31m" in str(found)
    assert len(str(found).splitlines()) == 3


# --- names ----------------------------------------------------------------------------

NAMES = [
    "model.layers.0.mlp.down_proj\x00",
    "\x1b[31mmodel\x1b[0m",
    "\x1b]0;title\x07",
    "a\nb",
    "a\r\nerror: forged",
    "\u202emodel",
    "\ud800",
    "\U0001f600.é",
    "",
    ".",
    "..",
    "../../etc/passwd",
    " ",
    "x" * 100_000,
    "." * 10_000,
    "model." * 10_000,
]


@pytest.mark.parametrize("name", NAMES, ids=[ascii(n)[:24] for n in NAMES])
@pytest.mark.parametrize("loader", LOADERS)
def test_names_of_every_sort(name: str, loader: str) -> None:
    group = COMPRESSED["config_groups"]["group_0"]
    blocks: list[dict[str, Any]] = [
        {**MODELOPT, "ignore": [name]},
        {**MIXED, "quantized_layers": {name: {"quant_algo": "FP8"}}},
        {**MIXED, "quantized_layers": {"lm_head": {"quant_algo": name}}},
        {**COMPRESSED, "ignore": [name]},
        {**COMPRESSED, "config_groups": {name: {**group, "targets": [name]}}},
        {**QUARK, "exclude": [name], "layer_quant_config": {name: QUARK["global_quant_config"]}},
        {**GPTQ, "dynamic": {name: {}}, "modules_in_block_to_quantize": [name]},
        {**AWQ, "modules_to_not_convert": [name]},
        {**FP8, "ignored_layers": [name]},
        {**AUTO_ROUND, "extra_config": {name: {"bits": 16}}, "block_name_to_quantize": name},
        {**MODELOPT, name: name},
        {"quant_method": name},
        {"quant_method": "modelopt", "quant_algo": name},
    ]
    for block in blocks:
        _ends(_with(block), loader)
    _ends(from_dicts({"config.json": {**LLAMA, "architectures": [name]}}), loader)
    _ends(from_dicts({"config.json": {**LLAMA, "model_type": name, name: name}}), loader)
    _ends(
        _with(None, {"producer": {"name": name}, "quantization": {"quant_algo": name, "exclude_modules": [name]}}),
        loader,
    )


# --- patterns ---------------------------------------------------------------------------

PATTERNS = [
    r"^(model\.)?(.*\.)*(.*_proj)$",
    r"^(model\.)?(.*\.)*(.*_projx)$",
    "(a+)+$",
    "([a-z._0-9]+)+!",
    "(.*)*(.*)*(.*)*z",
    "(x|x)*y",
    "(.|.)*!",
    "^(([a-z])+.)+[A-Z]([a-z])+$",
    "((((((((((.*)*)*)*)*)*)*)*)*)*)*!",
    ".{0,1000}.{0,1000}.{0,1000}!",
    "(.{1,500}){1,500}!",
    "(?=.*){100}x",
    "(?=(.*a)*b)c",
    r"(.*)\1\1!",
    "(?<=x)y(",
    "(",
    "[",
    "*",
    "(?P<n>",
    "\\",
    "a{99999999999}",
    "(?i)(?m)(?s)model.*",
    "model" + "?" * 50,
    "(" * 5_000 + ")" * 5_000,
    "|".join(["model.layers.0"] * 5_000),
]


@pytest.mark.parametrize("pattern", PATTERNS, ids=[p[:28] for p in PATTERNS])
@pytest.mark.parametrize("loader", LOADERS)
def test_patterns_made_to_backtrack(pattern: str, loader: str) -> None:
    group = COMPRESSED["config_groups"]["group_0"]
    for block in (
        {**COMPRESSED, "ignore": ["re:" + pattern]},
        {**COMPRESSED, "config_groups": {"group_0": {**group, "targets": ["re:" + pattern]}}},
        {**QUARK, "exclude": ["re:" + pattern]},
        {**GPTQ, "dynamic": {"-:" + pattern: {}}},
        {**GPTQ, "dynamic": {"+:" + pattern: {"bits": 8}}},
        {**AUTO_ROUND, "extra_config": {pattern: {"bits": 16}}},
        {**MODELOPT, "ignore": [pattern]},
    ):
        _ends(_with(block), loader)


@pytest.mark.parametrize(
    "pattern", ["*" * 60 + "x", "*a" * 40 + "!", "[" * 1_000, "[!", "[]", "[z-a]*", "?" * 600, "*.*" * 30]
)
@pytest.mark.parametrize("loader", LOADERS)
def test_shell_patterns_made_to_backtrack(pattern: str, loader: str) -> None:
    for block in (
        {**MODELOPT, "ignore": [pattern]},
        {**QUARK, "exclude": [pattern], "layer_quant_config": {pattern: {}}},
    ):
        _ends(_with(block), loader)
        _ends(
            _with(
                None,
                {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": [pattern]}},
            ),
            loader,
        )


# --- values of other types ----------------------------------------------------------------

ODD: list[Any] = [
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    [],
    ["x"],
    [None],
    [[]],
    [{}],
    [1],
    {},
    {"x": None},
    {"": {}},
    {"x": {"x": []}},
]


def _replaced(value: Any, odd: Any) -> Iterator[Any]:
    """Yield copies of a JSON value in which one inner value is another."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield {**value, key: odd}
            yield {k: v for k, v in value.items() if k != key}
            yield from ({**value, key: changed} for changed in _replaced(inner, odd))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield [*value[:index], odd, *value[index + 1 :]]
            yield from ([*value[:index], changed, *value[index + 1 :]] for changed in _replaced(inner, odd))


BESIDE = {
    "producer": {"name": "modelopt", "version": "0.40"},
    "quantization": {
        "quant_algo": "MIXED_PRECISION",
        "kv_cache_quant_algo": "FP8",
        "exclude_modules": ["lm_head"],
        "quantized_layers": {"model.layers.0.mlp.down_proj": {"quant_algo": "NVFP4", "group_size": 16}},
    },
}


def _odd_blocks(name: str) -> Iterator[Any]:
    for odd in ODD:
        yield from map(_with, _replaced(FORMATS[name], odd))


def _odd_files() -> Iterator[Any]:
    for odd in ODD:
        for changed in _replaced(BESIDE, odd):
            yield from_dicts({"config.json": LLAMA, "hf_quant_config.json": changed})
            yield _with(MODELOPT, changed)


def _odd_configs() -> Iterator[Any]:
    for odd in ODD:
        for changed in _replaced(LLAMA, odd):
            yield from_dicts({"config.json": changed})
        for key in ("quantization_config", "compression_config", "text_config", "vision_config"):
            yield from_dicts({"config.json": {**LLAMA, key: odd}})


@pytest.mark.parametrize("name", FORMATS)
def test_another_type_in_every_place_of_a_block(name: str) -> None:
    for number, where in enumerate(_odd_blocks(name)):
        # Each loader in turn; the slow test below asks all of them.
        _ends(where, LOADERS[number % len(LOADERS)])


def test_another_type_in_every_place_of_the_file_beside() -> None:
    for number, where in enumerate(_odd_files()):
        _ends(where, LOADERS[number % len(LOADERS)])


def test_another_type_in_every_place_of_the_config() -> None:
    for number, where in enumerate(_odd_configs()):
        _ends(where, LOADERS[number % len(LOADERS)])


@pytest.mark.slow
@pytest.mark.parametrize("loader", LOADERS)
def test_another_type_in_every_place_for_every_loader(loader: str) -> None:
    for name in FORMATS:
        for where in _odd_blocks(name):
            _ends(where, loader)
    for where in (*_odd_files(), *_odd_configs()):
        _ends(where, loader)
