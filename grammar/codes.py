"""Every code that rule tools report, with what it means, why it matters, and a bad and a good example.

Both examples of every code are checked by a test; ``docs/rule-errors.md`` is written from this table.
"""

from __future__ import annotations

from typing import Final

from .code import FAMILY, LOADER, STACK, UP, Code, in_family, in_format

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
        LOADER + 'format demo when quant_method is "demo" {\n  default fp8 static\n',
        in_format("default fp8 static"),
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
        LOADER + "lane nvfp4 from nvfp4\n",
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
        in_format("exclusions ignore", "exclude by exat", "default fp8 static"),
        in_format("exclusions ignore", "exclude by exact", "default fp8 static"),
    ),
    Code(
        "BL111",
        "an unreachable rule",
        "An earlier rule, or several together, decide everything that this one could decide. Or, as a *warning*, its "
        "condition never holds.",
        "The first rule that decides wins, so this one never will. Usually the two are in the wrong order.",
        in_format("exclusions ignore", "default fp8 static", "exclude by exact"),
        in_format("exclusions ignore", "exclude by exact", "default fp8 static"),
    ),
    Code(
        "BL112",
        "an empty version range",
        "No version that the loader file describes lies between `since` and `until` (`until` excludes its version). "
        "Or a text is no version.",
        "The statement is never in force.",
        in_format('default fp8 static since "2.0" until "1.0"', "default fp8 dynamic"),
        in_format('default fp8 static since "1.0" until "2.0"', "default fp8 dynamic"),
    ),
    Code(
        "BL113",
        "overlapping version ranges",
        "Two definitions of one name are in force in the same version.",
        "Only one of them counts, and which one is an accident of their order.",
        LOADER + 'let mixed = quant_algo is "A" until "2.0"\nlet mixed = quant_algo is "B" since "1.0"\n\n'
        "format demo when mixed {\n  default fp8 static\n}\n",
        LOADER + 'let mixed = quant_algo is "A" until "2.0"\nlet mixed = quant_algo is "B" since "2.0"\n\n'
        "format demo when mixed {\n  default fp8 static\n}\n",
    ),
    Code(
        "BL114",
        "a shard that the family does not have",
        "`fuse` names a module that no layer of the family has under that loader's spelling.",
        "Nothing is fused, and the shapes and answers of the fused module are those of the parts.",
        in_family(tail="\nnames spec {\n  fuse gate_up_proj = gate_proj up_proj\n}\n"),
        in_family(
            "linear mlp.gate_proj [intermediate_size, hidden_size] column op up when gated",
            tail='\nlet gated = model_type is "demo"\n\nnames spec {\n  fuse gate_up_proj = gate_proj up_proj\n}\n',
        ).replace('"num_hidden_layers": 1', '"model_type": "toy", "num_hidden_layers": 1'),
    ),
    Code(
        "BL115",
        "a matcher that does not fit its source",
        "The pattern kind, target or quantifier makes no sense for the list it is used on.",
        "`first` picks among entries of a listing; of an exclusion list, any entry excludes. Classes are no paths.",
        in_format("exclusions ignore", "exclude by exact on shards first", "default fp8 static"),
        in_format("exclusions ignore", "exclude by exact on shards all", "default fp8 static"),
    ),
    Code(
        "BL116",
        "a definition that needs itself",
        "A `let` refers to its own value, or a chain uses itself.",
        "Its value would never be found.",
        LOADER
        + 'let algo = upper(method)\nlet method = algo\n\nformat demo when algo is "FP8" {\n  default fp8 static\n}\n',
        LOADER + 'let algo = upper(quant_method)\n\nformat demo when algo is "FP8" {\n  default fp8 static\n}\n',
    ),
    Code(
        "BL117",
        "a bad regular expression",
        "The pattern of a `regex` rename does not compile.",
        "No name could be renamed by it.",
        in_family(tail='\nnames spec {\n  regex "layers.(" as "blocks."\n}\n'),
        in_family(tail='\nnames spec {\n  regex "^encoder\\\\." as "model."\n}\n'),
    ),
    Code(
        "BL118",
        "a family without modules",
        "No statement of the family builds a module.",
        "There would be nothing to resolve.",
        FAMILY.rstrip("\n")
        + '\n\ntest "demo" {\n  given config.json {"architectures": ["DemoForCausalLM"]}\n  expect refusal\n}\n',
        in_family(),
    ),
    Code(
        "BL119",
        "an open-ended pattern",
        "A digit before `*`, or at the end of a text that may go on: `layers.1*` also hits layers 10 to 19. "
        "Or a dot in a regular expression that means any character.",
        "The rule decides modules that nobody meant. Where an engine really does so, say so with `# ignore BL119`.",
        in_format('exclude named "model.layers.1*"', "default fp8 static"),
        in_format('exclude named "model.layers.1.*"', "default fp8 static"),
        "warning",
    ),
    Code(
        "BL120",
        "a pattern that matches nothing",
        "No module of the family (for a loader: of any family) has such a name.",
        "The rule never does anything; most often the name is spelled as in the other name space.",
        in_family(tail="\nnames spec {\n  never mlp.router\n}\n"),
        in_family(tail="\nnames spec {\n  never mlp.up_proj\n}\n"),
        "warning",
    ),
    Code(
        "BL121",
        "a format without a default",
        "The chain of a format can end without a decision, in at least one version.",
        "A module that no rule decides stops the whole resolution.",
        in_format("exclusions ignore", "exclude by exact"),
        in_format("exclusions ignore", "exclude by exact", "default fp8 static"),
    ),
    Code(
        "BL122",
        "a duplicate definition",
        "Two formats, names, tests, modules or options of the same name.",
        "Only one of them counts.",
        in_format("default fp8 static") + '\nformat demo when quant_method is "other" {\n  default bf16\n}\n',
        in_format("default fp8 static") + '\nformat other when quant_method is "other" {\n  default bf16\n}\n',
    ),
    Code(
        "BL123",
        "an unknown config key",
        "Neither a packaged checkpoint of this family nor one of its tests has the key. A key whose absence is "
        "provided for, by `or` or `exists`, is asked about only where it looks misspelt.",
        "A misspelt key is absent, and a size made of it an error at the user's desk. Put new keys into a test.",
        in_family(stack="  linear mlp.up_proj [intermediate_sise, hidden_size] column op up\n"),
        in_family(),
    ),
    Code(
        "BL124",
        "a family without tests",
        "The file has no `test` block.",
        "Shapes and names are easy to get wrong and hard to see; a toy config with sizes worked out by hand shows it.",
        FAMILY + STACK + UP + "}\n",
        in_family(),
    ),
    Code(
        "BL125",
        "a test that tests nothing",
        "A test without `given config.json`, or without an expectation, or one that expects the same module twice.",
        "It would pass whatever the rules say.",
        LOADER.rstrip("\n") + '\n\ntest "nothing" {\n  given config.json {"architectures": ["LlamaForCausalLM"]}\n}\n',
        LOADER.rstrip("\n")
        + '\n\ntest "something" {\n  given config.json {"architectures": ["DemoForCausalLM"]}\n  expect refusal\n}\n',
    ),
    Code(
        "BL126",
        "an operation with the wrong sizes",
        "An operation lacks a size that its kind needs, or has one that its kind does not know.",
        "It could not be priced.",
        in_family("op norm elementwise byte = 4 * 2 * hidden_size"),
        in_family("op norm elementwise bytes = 4 * 2 * hidden_size"),
    ),
    Code(
        "BL127",
        "something defined and never used",
        "A `let`, a chain or a list of declarations that no rule looks at.",
        "Either it is left over, or the rule that should use it is missing: excluded modules would be quantized.",
        in_format("exclusions ignore", "default fp8 static"),
        in_format("exclusions ignore", "exclude by exact", "default fp8 static"),
        "warning",
    ),
    Code(
        "BL128",
        "a rule without its source",
        "`take listing`, `take group` or `exclude` in a format that names no listing, groups or exclusions.",
        "The rule looks at an empty list and never decides.",
        in_format("exclude by exact", "default fp8 static"),
        in_format("exclusions ignore", "exclude by exact", "default fp8 static"),
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
        in_family().replace("for DemoForCausalLM", "for DemoForCausalLM, LlamaForCausalLM"),
        in_family(),
    ),
    Code(
        "BL131",
        "an ignore comment without effect",
        "`# ignore` names no code, or one that is not reported for the statement.",
        "It would hide the next finding of that kind.",
        in_format("default fp8 static  # ignore BL111"),
        in_format("default fp8 static"),
        "warning",
    ),
    Code(
        "BL132",
        "a call with the wrong number of values",
        "A function is given too few or too many values.",
        "It cannot be evaluated.",
        LOADER + 'format demo when upper(quant_method, quant_algo) is "FP8" {\n  default fp8 static\n}\n',
        LOADER + 'format demo when upper(quant_method) is "FP8" {\n  default fp8 static\n}\n',
    ),
    Code(
        "BL133",
        "an extension of nothing",
        "`extend` names a loader or family that is not in force, or repeats the condition of a format that it adds to.",
        "Its statements are never used; a format keeps the condition of the file that it stands in.",
        "language 1\nextend loader vlm\nlet demo = 1\n",
        'language 1\nextend loader vllm\nformat modelopt_mixed {\n  exclude named "*.self_attn.indexer.*"\n}\n',
    ),
    Code(
        "BL134",
        "a comparison that cannot come out both ways",
        "A value is compared with a word that it never is, or with a value of another type.",
        "The rule always holds or never does, whatever its author meant.",
        in_format("exclusions ignore", 'exclude by exact when kind is "linaer"', "default fp8 static"),
        in_format("exclusions ignore", 'exclude by exact when kind is "linear"', "default fp8 static"),
    ),
    Code(
        "BL135",
        "a name that some versions lack",
        "A `let` is in force in some of the loader's versions and used in others.",
        "There the name is looked up in the metadata, where it is most likely absent.",
        LOADER + 'let mixed = quant_algo is "A" until "2.0"\n\nformat demo when mixed {\n  default fp8 static\n}\n',
        LOADER + 'let mixed = quant_algo is "A" until "2.0"\nlet mixed = quant_algo is "B" since "2.0"\n\n'
        "format demo when mixed {\n  default fp8 static\n}\n",
        "warning",
    ),
    Code(
        "BL136",
        "a module without sizes",
        "A `linear`, `embed` or `lm_head` has no `[OUT, IN]` behind its path; only experts give their sizes by name.",
        "It can neither be split over GPUs nor priced.",
        in_family(stack="  linear mlp.up_proj column op up\n"),
        in_family(),
    ),
    Code(
        "BL137",
        "layers without a number",
        "The path of a stack's layers has no `{i}`, or something else in braces.",
        "All layers would have the same name, and no declaration about one of them could be found.",
        in_family().replace("model.layers.{i}.", "model.layers.{l}."),
        in_family(),
    ),
    Code(
        "BL138",
        "words that repeat or exclude one another",
        "A list holds a word, a flag or a version twice. An *error* where a module is split in two ways.",
        "One of them was most likely meant to be another.",
        in_format("exclusions ignore", "exclude by exact, exact", "default fp8 static"),
        in_format("exclusions ignore", "exclude by exact, glob", "default fp8 static"),
        "warning",
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
    lines = [line if len(line) <= 240 else line[:97] + " ..." for line in text.rstrip("\n").split("\n")]
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
