"""Small rule files, and what `rules check` says about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bitlane.resolver.check import Source, check
from bitlane.rules.library import find

if TYPE_CHECKING:
    from bitlane.grammar.diagnostics import Diagnostic

HEAD = 'language 1\nloader demo "1.0" "2.0" "3.0"\nread config.json quantization_config\n'
UP = "linear up [intermediate_size, hidden_size] column op up"


def diagnostics(text: str, *others: str) -> list[Diagnostic]:
    """What check reports for the first text, the others lying beside it."""
    texts = [text, *others]
    listed = [Source(f"{n}.rules", Path(f"{n}.rules"), s) for n, s in enumerate(texts)]
    return [d for d in check(listed, find()).diagnostics if d.file == "0.rules"]


def found(text: str, *others: str) -> list[tuple[str, int]]:
    """Codes and lines of the findings about the first text."""
    return [(d.code, d.span.line) for d in diagnostics(text, *others)]


def told(text: str, *others: str) -> list[tuple[str, str, str]]:
    """Code, severity and help of each."""
    return [(d.code, d.severity, d.help) for d in diagnostics(text, *others)]


def form(*lines: str, head: str = "", when: str = 'quant_method is "demo"') -> str:
    """Write a loader of one format; its lines begin at line 5, after those of ``head``."""
    body = "".join(f"  {line}\n" for line in lines)
    return f"{HEAD}{head}format demo when {when} {{\n{body}}}\n"


def family(
    *lines: str, head: str = "", at: str = "model.layers.{i}.", count: str = "layers", tail: str = "", keys: str = ""
) -> str:
    """Write a family of one stack with a test; its lines begin at line 4, after those of ``head``."""
    body = "".join(f"  {line}\n" for line in lines)
    config = f'"architectures": ["DemoForCausalLM"], "layers": 1, "hidden_size": 8, "intermediate_size": 16{keys}'
    return (
        f'language 1\nfamily demo for DemoForCausalLM\n{head}stack decoder of {count} at "{at}" {{\n{body}}}\n{tail}'
        f'test "t" {{\n  given config.json {{{config}}}\n  under spec\n  expect model.layers.0.up bf16\n}}\n'
    )
