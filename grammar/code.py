"""What a code is, and the small rule files that show one."""

from __future__ import annotations

from dataclasses import dataclass

LOADER = 'language 1\nloader demo "1.0" "2.0"\nread config.json quantization_config\n\n'
_FORMAT = LOADER + 'format demo when quant_method is "demo" {{\n{}}}\n'
FAMILY = "language 1\nfamily demo for DemoForCausalLM\n\n"
STACK = 'stack layers of num_hidden_layers at "model.layers.{i}." {\n'
_TEST = """
test "demo" {
  given config.json {
    "architectures": ["DemoForCausalLM"], "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128
  }
  under spec
  expect model.layers.0.mlp.up_proj bf16 [128, 64]
}
"""
UP = "  linear mlp.up_proj [intermediate_size, hidden_size] column op up\n"


def in_format(*lines: str) -> str:
    """Write a loader of one format."""
    return _FORMAT.format("".join(f"  {line}\n" for line in lines))


def in_family(*lines: str, tail: str = "", stack: str = UP) -> str:
    """Write a family of one stack, with a test."""
    return FAMILY + STACK + stack + "".join(f"  {line}\n" for line in lines) + "}\n" + tail + _TEST


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of finding.

    Attributes
    ----------
    title
        What is wrong, as a heading.
    meaning
        What the tool saw.
    why
        What goes wrong when it stays.
    bad, good
        A file that has it, and the file put right. Bytes where the file is no text.
    severity
        ``error`` makes the file unusable, ``warning`` does not.
    """

    code: str
    title: str
    meaning: str
    why: str
    bad: str | bytes
    good: str
    severity: str = "error"
