"""Every code that rule tools report, with what it means, why it matters, and a bad and a good example.

Both examples of every code are checked by a test; ``docs/rule-errors.md`` is written from this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_LOADER = 'language 1\nloader demo "1.0" "2.0"\nread config.json quantization_config\n\n'
_FORMAT = _LOADER + 'format demo when quant_method is "demo" {{\n{}}}\n'
_FAMILY = "language 1\nfamily demo for DemoForCausalLM\n\n"
_STACK = 'stack layers of num_hidden_layers at "model.layers.{i}." {\n'
_TEST = """
test "demo" {
  given config.json {
    "architectures": ["DemoForCausalLM"], "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 128
  }
  under spec
  expect model.layers.0.mlp.up_proj bf16 [128, 64]
}
"""
_UP = "  linear mlp.up_proj [intermediate_size, hidden_size] column op up\n"


def _format(*lines: str) -> str:
    return _FORMAT.format("".join(f"  {line}\n" for line in lines))


def _family(*lines: str, tail: str = "", stack: str = _UP) -> str:
    return _FAMILY + _STACK + stack + "".join(f"  {line}\n" for line in lines) + "}\n" + tail + _TEST


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


_ALL = (
    Code(
        "BL100",
        "unexpected text",
        "The parser met something that cannot stand there. The message names it, and what could stand there instead.",
        "A rule that is read otherwise than it was meant decides other modules than its author thinks.",
        "language 1\nlanes\nlane nvfp4 frm nvfp4 when sm >= 100\nweights nvfp4 = 0.5625\n",
        "language 1\nlanes\nlane nvfp4 from nvfp4 when sm >= 100\nweights nvfp4 = 0.5625\n",
    ),
    Code(
        "BL101",
        "something is never closed",
        "A string, a bracket or a block is opened and not closed, or closed without being opened.",
        "What follows would belong to it. Strings end on their line; a block ends with `}` on a line of its own.",
        _LOADER + 'format demo when quant_method is "demo" {\n  default fp8 static\n',
        _format("default fp8 static"),
    ),
    Code(
        "BL102",
        "too deep or too large",
        "An expression nests deeper than 64, a statement holds more than 256 operators, or a file more than 1 MiB.",
        "Rule files are read by people. The bound also keeps a hostile file from exhausting the reader.",
        "language 1\nlanes\nweights demo = " + "(" * 70 + "1" + ")" * 70 + "\n",
        "language 1\nlanes\nweights demo = 1\n",
    ),
    Code(
        "BL103",
        "a value that cannot be",
        "An unknown language version or escape in a string, a number beyond 64 bits, a JSON key given twice.",
        "Other readers would take another value, or the last of two. Nothing here does so silently.",
        "language 2\nlanes\n",
        "language 1\nlanes\n",
    ),
    Code(
        "BL104",
        "a statement in the wrong kind of file",
        "All three kinds of file share one grammar, but a loader has no layers and a family no formats.",
        "The statement would be read and never used.",
        _LOADER + "lane nvfp4 from nvfp4\n",
        "language 1\nextend lanes\nlane nvfp4 from nvfp4\n",
    ),
    Code(
        "BL105",
        "an unreadable file",
        "The file cannot be opened, or is not UTF-8.",
        "A rule file that is skipped changes answers without a word.",
        b"language 1\nlanes\n# caf\xe9\n",
        "language 1\nlanes\n# caf\u00e9\n",
    ),
    Code(
        "BL110",
        "an unknown name",
        "A chain, pattern kind, target, module kind, function, loader, operation or option that nothing defines.",
        "The rule could never work; the nearest known name is suggested.",
        _format("exclusions ignore", "exclude by exat", "default fp8 static"),
        _format("exclusions ignore", "exclude by exact", "default fp8 static"),
    ),
    Code(
        "BL111",
        "an unreachable rule",
        "An earlier rule decides everything that this one could decide.",
        "The first rule that decides wins, so this one never will. Usually the two are in the wrong order.",
        _format("exclusions ignore", "default fp8 static", "exclude by exact"),
        _format("exclusions ignore", "exclude by exact", "default fp8 static"),
    ),
    Code(
        "BL112",
        "an empty version range",
        "No version that the loader file describes lies between `since` and `until` (`until` excludes its version).",
        "The statement is never in force.",
        _format('default fp8 static since "2.0" until "1.0"', "default fp8 dynamic"),
        _format('default fp8 static since "1.0" until "2.0"', "default fp8 dynamic"),
    ),
    Code(
        "BL113",
        "overlapping version ranges",
        "Two definitions of one name are in force in the same version.",
        "Only one of them counts, and which one is an accident of their order.",
        _LOADER + 'let mixed = quant_algo is "A" until "2.0"\nlet mixed = quant_algo is "B" since "1.0"\n\n'
        "format demo when mixed {\n  default fp8 static\n}\n",
        _LOADER + 'let mixed = quant_algo is "A" until "2.0"\nlet mixed = quant_algo is "B" since "2.0"\n\n'
        "format demo when mixed {\n  default fp8 static\n}\n",
    ),
    Code(
        "BL114",
        "a shard that the family does not have",
        "`fuse` names a module that no layer of the family has under that loader's spelling.",
        "Nothing is fused, and the shapes and answers of the fused module are those of the parts.",
        _family(tail="\nnames spec {\n  fuse gate_up_proj = gate_proj up_proj\n}\n"),
        _family(
            "linear mlp.gate_proj [intermediate_size, hidden_size] column op up when gated",
            tail='\nlet gated = model_type is "demo"\n\nnames spec {\n  fuse gate_up_proj = gate_proj up_proj\n}\n',
        ).replace('"num_hidden_layers": 1', '"model_type": "toy", "num_hidden_layers": 1'),
    ),
    Code(
        "BL115",
        "a matcher that does not fit its source",
        "The pattern kind, target or quantifier makes no sense for the list it is used on.",
        "`first` picks among entries of a listing; of an exclusion list, any entry excludes. Classes are no paths.",
        _format("exclusions ignore", "exclude by exact on shards first", "default fp8 static"),
        _format("exclusions ignore", "exclude by exact on shards all", "default fp8 static"),
    ),
    Code(
        "BL116",
        "a definition that needs itself",
        "A `let` refers to its own value, or a chain uses itself.",
        "Its value would never be found.",
        _LOADER
        + 'let algo = upper(method)\nlet method = algo\n\nformat demo when algo is "FP8" {\n  default fp8 static\n}\n',
        _LOADER + 'let algo = upper(quant_method)\n\nformat demo when algo is "FP8" {\n  default fp8 static\n}\n',
    ),
    Code(
        "BL117",
        "a bad regular expression",
        "The pattern of a `regex` rename does not compile.",
        "No name could be renamed by it.",
        _family(tail='\nnames spec {\n  regex "layers.(" as "blocks."\n}\n'),
        _family(tail='\nnames spec {\n  regex "^encoder\\\\." as "model."\n}\n'),
    ),
    Code(
        "BL118",
        "a family without modules",
        "No statement of the family builds a module.",
        "There would be nothing to resolve.",
        _FAMILY.rstrip("\n")
        + '\n\ntest "demo" {\n  given config.json {"architectures": ["DemoForCausalLM"]}\n  expect refusal\n}\n',
        _family(),
    ),
    Code(
        "BL119",
        "an open-ended pattern",
        "A digit before `*`, or at the end of a text that may go on: `layers.1*` also hits layers 10 to 19. "
        "Or a dot in a regular expression that means any character.",
        "The rule decides modules that nobody meant. Where an engine really does so, say so with `# ignore BL119`.",
        _format('exclude named "model.layers.1*"', "default fp8 static"),
        _format('exclude named "model.layers.1.*"', "default fp8 static"),
        "warning",
    ),
    Code(
        "BL120",
        "a pattern that matches nothing",
        "No module of the family (for a loader: of any family) has such a name.",
        "The rule never does anything; most often the name is spelled as in the other name space.",
        _family(tail="\nnames spec {\n  never mlp.router\n}\n"),
        _family(tail="\nnames spec {\n  never mlp.up_proj\n}\n"),
        "warning",
    ),
    Code(
        "BL121",
        "a format without a default",
        "The chain of a format can end without a decision, in at least one version.",
        "A module that no rule decides stops the whole resolution.",
        _format("exclusions ignore", "exclude by exact"),
        _format("exclusions ignore", "exclude by exact", "default fp8 static"),
    ),
    Code(
        "BL122",
        "a duplicate definition",
        "Two formats, names, tests or options of the same name.",
        "Only one of them counts.",
        _format("default fp8 static") + '\nformat demo when quant_method is "other" {\n  default bf16\n}\n',
        _format("default fp8 static") + '\nformat other when quant_method is "other" {\n  default bf16\n}\n',
    ),
    Code(
        "BL123",
        "an unknown config key",
        "Neither a packaged checkpoint of this family nor one of its tests has the key.",
        "A misspelt key is absent, and a size made of it an error at the user's desk. Put new keys into a test.",
        _family(stack="  linear mlp.up_proj [intermediate_sise, hidden_size] column op up\n"),
        _family(),
    ),
    Code(
        "BL124",
        "a family without tests",
        "The file has no `test` block.",
        "Shapes and names are easy to get wrong and hard to see; a toy config with sizes worked out by hand shows it.",
        _FAMILY + _STACK + _UP + "}\n",
        _family(),
    ),
    Code(
        "BL125",
        "a test that tests nothing",
        "A test without `given config.json`, or without an expectation, or one that expects the same module twice.",
        "It would pass whatever the rules say.",
        _LOADER.rstrip("\n") + '\n\ntest "nothing" {\n  given config.json {"architectures": ["LlamaForCausalLM"]}\n}\n',
        _LOADER.rstrip("\n")
        + '\n\ntest "something" {\n  given config.json {"architectures": ["DemoForCausalLM"]}\n  expect refusal\n}\n',
    ),
    Code(
        "BL126",
        "an operation with the wrong sizes",
        "An operation lacks a size that its kind needs, or has one that its kind does not know.",
        "It could not be priced.",
        _family("op norm elementwise byte = 4 * 2 * hidden_size"),
        _family("op norm elementwise bytes = 4 * 2 * hidden_size"),
    ),
    Code(
        "BL127",
        "something defined and never used",
        "A `let`, a chain or a list of declarations that no rule looks at.",
        "Either it is left over, or the rule that should use it is missing: excluded modules would be quantized.",
        _format("exclusions ignore", "default fp8 static"),
        _format("exclusions ignore", "exclude by exact", "default fp8 static"),
        "warning",
    ),
    Code(
        "BL128",
        "a rule without its source",
        "`take listing`, `take group` or `exclude` in a format that names no listing, groups or exclusions.",
        "The rule looks at an empty list and never decides.",
        _format("exclude by exact", "default fp8 static"),
        _format("exclusions ignore", "exclude by exact", "default fp8 static"),
    ),
    Code(
        "BL129",
        "a lane without a stored size",
        "No `weights` statement gives the bytes per weight of a lane.",
        "Its modules can be resolved, but neither sized nor priced.",
        "language 1\nextend lanes\nlane demo_wo from demo\n",
        "language 1\nextend lanes\nlane demo_wo from demo\nweights demo_wo = 4 / 8 + 2 / 128\n",
    ),
    Code(
        "BL130",
        "a model class with two families",
        "Two family files in force name the same class.",
        "Only the first one in force serves it.",
        _family().replace("for DemoForCausalLM", "for DemoForCausalLM, LlamaForCausalLM"),
        _family(),
    ),
    Code(
        "BL131",
        "an ignore comment without effect",
        "`# ignore` names no code, or one that is not reported for the statement.",
        "It would hide the next finding of that kind.",
        _format("default fp8 static  # ignore BL111"),
        _format("default fp8 static"),
        "warning",
    ),
    Code(
        "BL132",
        "a call with the wrong number of values",
        "A function is given too few or too many values.",
        "It cannot be evaluated.",
        _LOADER + 'format demo when upper(quant_method, quant_algo) is "FP8" {\n  default fp8 static\n}\n',
        _LOADER + 'format demo when upper(quant_method) is "FP8" {\n  default fp8 static\n}\n',
    ),
    Code(
        "BL133",
        "an extension of nothing",
        "`extend` names a loader or family that is not in force, or repeats the condition of a format that it adds to.",
        "Its statements are never used; a format keeps the condition of the file that it stands in.",
        "language 1\nextend loader vlm\nlet demo = 1\n",
        'language 1\nextend loader vllm\nformat modelopt_mixed {\n  exclude named "*.self_attn.indexer.*"\n}\n',
    ),
)

CODES: Final[dict[str, Code]] = {c.code: c for c in _ALL}


def page(code: Code) -> str:
    """Write the documentation of one code as Markdown."""
    bad = code.bad.decode("latin-1") if isinstance(code.bad, bytes) else code.bad
    return "\n".join(
        [
            f"## {code.code}: {code.title}",
            "",
            f"*{code.severity}*. {code.meaning}",
            "",
            f"**Why.** {code.why}",
            "",
            "Bad:",
            "",
            *_fenced(bad),
            "",
            "Good:",
            "",
            *_fenced(code.good),
            "",
        ]
    )


def _fenced(text: str) -> list[str]:
    lines = [line if len(line) <= 100 else line[:97] + "..." for line in text.rstrip("\n").split("\n")]
    return ["```rules", *lines, "```"]


def pages() -> str:
    """Write ``docs/rule-errors.md``."""
    head = [
        "# Codes of the rule tools",
        "",
        "Written by `python -m bitlane.grammar.codes`; both examples of every code are checked by a test.",
        "`bitlane rules explain BL###` prints one of them. A finding that is meant can be silenced where it stands, by",
        "`# ignore BL###` behind the statement or on the line above it; one that silences nothing is reported (BL131).",
        "",
    ]
    return "\n".join(head) + "\n" + "\n".join(page(c) for c in CODES.values())


if __name__ == "__main__":
    print(pages(), end="")
