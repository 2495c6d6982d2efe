"""What every statement means, in one line each: shown on hover, and the reference of docs/rule-language.md."""

from __future__ import annotations

from typing import Final, NamedTuple


class Statement(NamedTuple):
    """How a statement is written, and what it does."""

    syntax: str
    meaning: str


# By where a statement may stand: the grammar's rule, the heading, and the statements by their first word.
STATEMENTS: Final[dict[str, dict[str, Statement]]] = {
    "header": {
        "loader": Statement('loader NAME "VERSION" ...', "the file says how an engine decides, in these versions"),
        "family": Statement("family NAME for CLASS, ...", "the file says what models of these classes are made of"),
        "lanes": Statement("lanes", "the file says what a GPU runs for what a loader builds"),
        "extend": Statement(
            "extend loader|family|lanes [NAME]",
            "the statements of this file come before those of the file that it names",
        ),
    },
    "statement": {
        "let": Statement(
            "let NAME = EXPRESSION", "a name for a value; worked out on first use, so that their order does not matter"
        ),
        "read": Statement(
            "read FILE [PATH] [when ...]",
            "where metadata is read; without a condition the first hit counts, with one it replaces what was found",
        ),
        "refuse": Statement(
            'refuse "MESSAGE" [code BL###] [for KIND, ...] [when ...]', "the engine stops here, with these words"
        ),
        "report": Statement(
            'report "MESSAGE" [code BL###] [when ...]', "something worth telling that changes no answer"
        ),
        "builtin": Statement(
            "builtin NAME = SHARD ...", "shards that a loader knows by itself, whatever the model class says"
        ),
        "alias": Statement(
            'alias "PATH" as "OTHER"', "another spelling under which the names of a listing are looked up"
        ),
        "chain": Statement("chain NAME { STEPS }", "steps that several formats share; `use NAME` puts them in"),
        "format": Statement(
            "format NAME [when ...] { ITEMS }",
            "one layout of metadata as this engine reads it; the first whose condition holds is chosen",
        ),
        "config": Statement(
            "config PATH | root", "where the bare names of a family are looked up: the first of these that exists"
        ),
        "require": Statement(
            'require EXPRESSION else "MESSAGE"', "what a config must fulfil, checked before anything is built"
        ),
        "stack": Statement(
            'stack NAME of COUNT at "PREFIX.{i}." [unpriced] [when ...] { PARTS }',
            "a run of layers; `i` is the number of the layer",
        ),
        "part": Statement(
            "part NAME [when ...] { MODULES }", "modules and operations that a layer has when a condition holds"
        ),
        "linear": Statement(
            "linear PATH [OUT, IN] column|row|replicated [plain] [unpriced] op NAME [class CLASS] [KEY = VALUE ...]",
            "one stored matrix, by its checkpoint-side name",
        ),
        "experts": Statement(
            "experts PATH op NAME count = topk = hidden = inter = gated =",
            "the routed experts of one layer, as one module",
        ),
        "embed": Statement("embed PATH [ROWS, HIDDEN] op NAME", "an embedding"),
        "lm_head": Statement("lm_head PATH [ROWS, HIDDEN] column op NAME", "the language-model head"),
        "op": Statement("op NAME KIND KEY = VALUE ... [when ...]", "an operation without weights, priced per rank"),
        "overlap": Statement(
            "overlap NAME [prefill|decode] { OPS } with { OPS } [when ...]",
            "operations that an engine runs side by side",
        ),
        "names": Statement(
            "names LOADER { RULES }", "what an engine calls, fuses and leaves out of the family's modules"
        ),
        "lane": Statement(
            "lane NAME from ALGORITHM, ... [for KIND, ...] [when ...] [approximates]",
            "what the GPU runs for an algorithm; the first rule that fits counts",
        ),
        "weights": Statement("weights LANE = BYTES", "stored bytes per weight of a lane, scales included"),
        "system": Statement("system ALIAS as NAME", "a short name for a GPU system"),
        "test": Statement(
            'test "NAME" [todo] { given ... under ... expect ... }', "metadata, and what must come of it"
        ),
    },
    "format_item": {
        "exclusions": Statement(
            "exclusions PATH | PATH [FLAGS] [when ...]", "where the list of excluded modules stands"
        ),
        "listing": Statement(
            "listing PATH | PATH algorithm KEY [FLAGS] [when ...]",
            "where modules are listed, and the key of their algorithm",
        ),
        "groups": Statement(
            "groups PATH [targets KEY] [FLAGS] [when ...]", "where groups stand, and the key of their targets"
        ),
        "kv_cache": Statement(
            "kv_cache EXPRESSION [when ...]", "the precision of the KV cache that the metadata declares"
        ),
        "algorithms": Statement(
            'algorithms { "WORD" -> ALGORITHM [ACTIVATIONS] ... }',
            "what the words of a listing mean, and for which kinds",
        ),
        "schemes": Statement(
            "schemes { ALGORITHM [ACTIVATIONS] [when ...] ... }", "what a group means, by its own keys"
        ),
    },
    "step": {
        "leave": Statement("leave KIND, ...", "modules of these kinds are never quantized"),
        "exclude": Statement(
            "exclude by PATTERN, ... [on TARGET] [QUANTIFIER] [as ALGORITHM] [when ...]",
            "what the exclusion list (or `named` patterns) matches is not quantized, or keeps a base algorithm",
        ),
        "take": Statement(
            "take listing|group by PATTERN, ... [on TARGET] [QUANTIFIER] [when ...]",
            "what is declared for a matching entry is the answer",
        ),
        "default": Statement(
            "default ALGORITHM [ACTIVATIONS] [at PATH] [for KIND, ...] [when ...]", "what no step before has decided"
        ),
        "use": Statement("use CHAIN", "the steps of a chain stand here"),
        "each": Statement(
            "each TARGET use CHAIN [comparing EXPRESSION, ...]",
            "every name is decided by a chain; all must say the same",
        ),
    },
    "name_rule": {
        "prefix": Statement('prefix "OLD" as "NEW"', "renames modules and declarations that begin with it"),
        "suffix": Statement('suffix "OLD" as "NEW"', "renames modules and declarations that end with it"),
        "substring": Statement('substring "OLD" as "NEW"', "renames the first occurrence in modules and declarations"),
        "regex": Statement('regex "OLD" as "NEW"', "renames modules and declarations by a regular expression"),
        "path_prefix": Statement('path_prefix "OLD" as "NEW"', "renames modules alone"),
        "path_suffix": Statement('path_suffix "OLD" as "NEW"', "renames modules alone"),
        "path_substring": Statement('path_substring "OLD" as "NEW"', "renames modules alone"),
        "path_regex": Statement('path_regex "OLD" as "NEW"', "renames modules alone"),
        "class": Statement('class "OLD" as "NEW"', "another class name, for targets that name classes"),
        "fuse": Statement(
            "fuse NAME = SHARD ... [unmapped]",
            "shards under one parent become one module; `unmapped`: the quantization config does not know that",
        ),
        "never": Statement("never PATH, ...", "modules whose paths end so are built without a quantization config"),
        "asked": Statement(
            'asked PATH as "NAME"',
            "modules whose paths end so are looked up in the metadata under this name, empty for none",
        ),
        "lacks": Statement("lacks MODEL_CLASS, ...", "the engine has no such model class and refuses its checkpoints"),
    },
    "test_item": {
        "given": Statement("given FILE JSON", "one metadata file of the test's checkpoint"),
        "under": Statement(
            'under LOADER ["VERSION"] [on SYSTEM]', "the loader and GPU that the expectations below are about"
        ),
        "expect": Statement(
            'expect MODULE ALGORITHM [OUT, IN] [lane LANE] [by "RULE"] or refusal|conflict|unsupported|report ["TEXT"]',
            "what a module runs at and which rule says so, or what becomes of the checkpoint",
        ),
    },
}


def meaning(word: str) -> Statement | None:
    """Return the statement that begins with a word."""
    return next((group[word] for group in STATEMENTS.values() if word in group), None)
