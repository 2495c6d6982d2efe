"""The checks of family files: layers, modules, keys of configs and renames."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from linting import UP, family, found, told

from bitlane.cli import main
from bitlane.errors import RuleError
from bitlane.resolver.family import compile_family
from bitlane.rules.library import find

OVERLAY = "language 1\nextend family llama\n"
SAME = "linear mlp.up_proj [intermediate_size, hidden_size] column op mlp_gate_up"


@pytest.mark.parametrize(
    ("at", "count", "hint"),
    [
        ("model.layers.{i}.", "layers", ""),
        ("mtp.", "1", ""),
        ("model.layers.0.", "layers", "write `model.layers.{i}.`"),
        ("x.", "layers", "write `x.{i}.`"),
        ("x.{j}.", "layers", "the number of the layer is `{i}`"),
        ("x.{i.", "layers", "the number of the layer is `{i}`"),
        ("x.{j}.{i}.", "layers", "the number of the layer is `{i}`"),
    ],
)
def test_layers_have_numbers(at: str, count: str, hint: str) -> None:
    """All but a single layer."""
    assert told(family(UP, at=at, count=count)) == ([("BL137", "error", hint)] if hint else [])


def test_flags_of_a_module() -> None:
    """A matrix is split in one way."""
    assert told(family(UP.replace("column", "column row"))) == [("BL138", "error", "a matrix is split in one way")]
    assert told(family(UP.replace("column", "row row"))) == [("BL138", "warning", "remove one")]
    assert found(family(UP.replace("column", "column plain unpriced"))) == []


@pytest.mark.parametrize("module", ["linear extra.proj op x", "linear lin", "embed e op x", "lm_head h column op y"])
def test_modules_have_sizes(module: str, tmp_path: Path) -> None:
    """For the check, for whoever compiles the family, and for the command line with the file and line."""
    hint = "give them behind its path: `[OUT, IN]`"
    assert told(family(UP, module)) == [("BL136", "error", hint)]
    file = tmp_path / "demo.rules"
    file.write_text(OVERLAY + f"part extra {{\n  {module}\n}}\n", encoding="utf-8")
    with pytest.raises(RuleError) as refused:
        compile_family(find((tmp_path,)), "LlamaForCausalLM", "spec", "")
    assert (refused.value.code, refused.value.exit_code, refused.value.place) == ("BL136", 3, f"{file}:4")
    asked = ["resolve", "openai/gpt-oss-120b", "--loader", "vllm", "--system", "h200", "--rules", str(tmp_path)]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 3
    assert f"{file}:4" in result.output + result.stderr


def test_experts_give_their_sizes_by_name() -> None:
    """They have no shape of one matrix."""
    experts = "experts ex op x count = 2 topk = 1 hidden = 8 inter = 8 gated = 1"
    assert found(family(UP, experts)) == []


@pytest.mark.parametrize(
    ("overlay", "twice"),
    [
        (f'stack more of num_hidden_layers at "model.layers.{{i}}." {{\n  {SAME}\n}}\n', True),
        (f'stack more of num_hidden_layers at "model.layers.{{i}}." when vocab_size > 8 {{\n  {SAME}\n}}\n', True),
        (f'stack more of num_hidden_layers at "model.blocks.{{i}}." {{\n  {SAME}\n}}\n', False),
        ("lm_head lm_head [vocab_size, hidden_size] column op lm_head\n", True),
        ("lm_head other_head [vocab_size, hidden_size] column op lm_head\n", False),
        # Layers that the family's own stack does not have.
        (
            'stack more of num_hidden_layers + 1 at "model.layers.{i}." {\n'
            f"  part draft when i >= num_hidden_layers {{\n    {SAME}\n  }}\n}}\n",
            False,
        ),
    ],
)
def test_a_module_that_the_extended_file_builds_already(overlay: str, twice: bool) -> None:
    """It would be counted twice."""
    assert ([c for c, _ in found(OVERLAY + overlay)] == ["BL122"]) is twice


def test_the_file_that_is_extended_is_not_told_of_it() -> None:
    """One mistake, one report."""
    base = family(UP)
    overlay = 'language 1\nextend family demo\nstack more of layers at "model.layers.{i}." {\n  ' + UP + "\n}\n"
    assert found(base, overlay) == []
    assert found(overlay, base) == [("BL122", 4)]


# --- keys of configs ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "module", "expected"),
    [
        # One alternative that is known provides for the others, unless they are near one that is.
        ("let dim = wholly or config.wholly or hidden_size\n", "[dim, dim]", []),
        ("let dim = hiden_size or hidden_size\n", "[dim, dim]", [("warning", "did you mean `hidden_size`?")]),
        # Where none is known, one report.
        ("let dim = wholly or config.wholly\n", "[dim, dim]", [("warning", "spell it")]),
        ("let dim = wholly\n", "[dim, dim]", [("error", "spell it")]),
        ("let dim = 2 * wholly\n", "[dim, dim]", [("error", "spell it")]),
        # A flag that other families have; one that nobody has.
        ("let tied = tie_word_embeddings\n", "[8, 8 if tied else 4]", []),
        ("let tied = wholly\n", "[8, 8 if tied else 4]", [("warning", "spell it")]),
        ("let odd = 2 if wholly exists else 4\n", "[8, odd]", []),
        ("let odd = wholly if wholly exists else 4\n", "[8, 2 * odd]", [("error", "spell it")]),
        ("let odd = 2 if len(wholly) > 0 else 4\n", "[8, odd]", []),
        ("let odd = 2 if hiden_size exists else 4\n", "[8, odd]", [("warning", "did you mean `hidden_size`?")]),
        # A definition that is misspelt where it is used is not left over besides.
        ("let dim_size = hidden_size\n", "[8, dimm_size]", [("error", "did you mean `dim_size`?")]),
    ],
)
def test_unknown_keys(head: str, module: str, expected: list[tuple[str, str]]) -> None:
    """A size that is absent is an error; a key whose absence is provided for is asked about where it looks misspelt."""
    reports = told(family(f"linear up {module} column op up", head=head))
    assert [(s, h[: len(e[1])]) for (_, s, h), e in zip(reports, expected, strict=True)] == expected
    assert {c for c, _, _ in reports} <= {"BL123"}


def test_unknown_keys_are_named_to_their_end() -> None:
    """The whole dotted name, and a suggestion from beside it."""
    head, keys = "let vision = config.vision_config\n", ', "vision_config": {"dims": 4}'
    text = family("linear up [vision.dim, hidden_size] column op up", head=head, keys=keys)
    assert told(text) == [("BL123", "error", "did you mean `vision.dims`?")]
    text = family(
        "linear up [vision.dims, hidden_size] column op up", head=head.replace("_config", "_confg"), keys=keys
    )
    assert told(text) == [("BL123", "warning", "did you mean `config.vision_config`?")]


def test_versions_of_an_engine_without_a_definition() -> None:
    """A name that a `names` block defines in some versions, used in others."""
    names = 'names vllm {\n  let fits = hidden_size % 64 is 0 until "0.31"\n  never up when not fits\n}\n'
    assert [c for c, _, _ in told(family(UP, tail=names))] == ["BL135"]
    assert found(family(UP, tail=names.replace("not fits", 'not fits until "0.31"'))) == []
    assert found(family(UP, tail=names.replace("}", '  let fits = true since "0.31"\n}'))) == []


# --- renames ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rename", "hint"),
    [
        ('prefix "modle."', "did you mean `model`?"),
        ('regex "^modle\\\\.(\\\\d+)\\\\."', "did you mean `model`?"),
        ('substring ".wieght"', "did you mean `weight`?"),
        ('substring ".nope."', "spell it as the checkpoint or the names before it do"),
        # Modules of the family; tensors; names that only declarations have; the beginning of one.
        *(
            (f"{rename}", "")
            for rename in ('prefix "model."', 'suffix ".qweight"', 'prefix "lm_head."', 'prefix "lay"')
        ),
        ('suffix ".gate_up_proj_blocks"', ""),
        ('regex "^(?P<lead>model)\\\\.layers\\\\.\\\\d+"', ""),
    ],
)
def test_renames_that_nothing_known_meets(rename: str, hint: str) -> None:
    """Only where a word of theirs is known from nowhere: declarations may hold names that no module has."""
    text = family(UP, tail=f'names spec {{\n  {rename} as "x"\n}}\n')
    assert told(text) == ([("BL120", "warning", hint)] if hint else [])
