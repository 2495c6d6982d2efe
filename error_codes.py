"""Every error and finding code outside the rule tools, in one line each; ``docs/errors.md`` is written from it.

Codes of rule files (BL1xx) have pages of their own in ``grammar/codes.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Group:
    """Codes about one thing, and where more is written."""

    title: str
    read: str
    codes: dict[str, str]


GROUPS: Final = (
    Group(
        "Finding and reading a checkpoint",
        "the message names file, key and way out",
        {
            "BL200": "no checkpoint of that name: neither a packaged id nor a folder, a config.json or a hub id",
            "BL201": "a metadata file is there and cannot be read",
            "BL202": "a metadata file is larger than any published one",
            "BL203": "a metadata file is not UTF-8, not JSON, or no JSON object",
            "BL204": "the metadata is nested too deeply",
            "BL205": "`architectures` names no model class, so no family can be found",
            "BL206": "there is no `config.json`",
            "BL210": "arithmetic of a family file met a value that is no number",
            "BL211": "a size in the config is 0 where something is divided by it",
            "BL212": "a size or a number of layers is negative, broken or beyond any model",
            "BL213": "the config contradicts itself; the family file says how",
            "BL214": "the config does not say how many layers there are",
        },
    ),
    Group(
        "The question: loader, version, system, split, names",
        "the message lists what is known",
        {
            "BL220": "unknown loader",
            "BL221": "a rules folder, file or table folder that is not there",
            "BL222": "no rule file describes this version of the loader",
            "BL223": "unknown GPU system",
            "BL224": "unknown mode to override",
            "BL225": "the model cannot be split so, or the engine refuses it",
            "BL226": "an operation lacks a size that its cost needs",
            "BL227": "unknown kind of operation in a family file",
            "BL228": "a file cannot be written",
            "BL229": "no such module, code or file to work on",
            "BL230": "no family file describes the architecture",
            "BL231": "the family file does not say how this engine names and fuses the modules",
            "BL232": "a folder named with `--models` or `--corpus` does not exist",
            "BL233": "`diff` has nothing to compare, or sides that do not pair",
            "BL234": "this version of the engine has no such model class",
        },
    ),
    Group(
        "What an engine refuses, conflicts, patterns",
        "`bitlane explain`, `bitlane diff`, `--loader spec`",
        {
            "BL240": "the engine refuses the metadata; its reason is the message, the rule is the place",
            "BL241": "the loader knows no such quantization method",
            "BL242": "quantization metadata that is no object",
            "BL243": "an exclusion list, a listing or groups of a type that the engine cannot read",
            "BL244": "some but not all shards of a fused module are named",
            "BL245": "the parts of one module are declared with more than one algorithm",
            "BL246": "an entry of the listing names no algorithm, or one that is no text",
            "BL247": "the engine has no method for the declared algorithm",
            "BL248": "some but not all routed experts of a layer are named, or not all alike",
            "BL249": "no rule of the format decides the module: the chain lacks a `default`",
            "BL250": "a pattern takes too long on one name",
            "BL251": "a pattern is no regular expression",
            "BL252": "a pattern is too long or too large to be compiled",
            "BL253": "the engine knows or refuses this method by name; bitlane does not describe it",
        },
    ),
    Group(
        "Lanes",
        "`rules/lanes.rules`",
        {
            "BL260": "this GPU or this engine cannot run the algorithm",
            "BL261": "no stored size is known for a lane",
            "BL262": "an algorithm that no lane rule mentions, or a lane file without a number that is asked for",
        },
    ),
    Group(
        "Task files, stored tensors, the hub, goldens, overrides",
        "[verify.md](verify.md), [conformance.md](conformance.md)",
        {
            "BL270": "not a task file",
            "BL271": "a safetensors file or index is cut short or unreadable",
            "BL272": "a safetensors header of more than 100 MB",
            "BL273": "a safetensors header that is no JSON of the format",
            "BL274": "tensors that overlap, leave gaps or do not fill their bytes",
            "BL275": "a weight index without a usable `weight_map`",
            "BL276": "neither a weight index nor a safetensors file is there",
            "BL277": "reading from the hub needs the extra `hub`",
            "BL278": "the hub does not give the file",
            "BL279": "a task file is there already",
            "BL280": "no golden lies in the folder",
            "BL281": "a file that is no golden",
            "BL282": "no known system has the compute capability that the engine was shown",
            "BL283": "an override that is not PATTERN=ALGORITHM, or none at all",
            "BL284": "an override names no module that can be quantized",
            "BL286": "note: modules that an override names stay unquantized by construction",
        },
    ),
    Group(
        "Findings that change no answer",
        "printed as notes, `problems` in JSON",
        {
            "BL290": "a `report` of a rule file without a code of its own",
            "BL291": "entries of a list or listing that cannot be names and are passed over",
            "BL292": "a metadata file holds keys twice; the last one counts",
            "BL293": "the engine ignores the quantization metadata and builds BF16",
            "BL294": "quantization is declared only in a file that the engine does not read",
            "BL295": "the engine reads one part of a block that declares more",
            "BL296": "what is quantized stands in tensor headers that the engine reads and bitlane does not",
            "BL297": "two files declare different things",
            "BL298": "the groups of a block disagree with its listing",
            "BL299": "an engine's answer differs from what the metadata means",
            "BL300": "a text where a list belongs: the engine takes it letter by letter",
            "BL301": "the weights are larger than the GPU's memory",
            "BL302": "a sequence is longer than the positions that the config names",
            "BL303": "a file beside config.json cannot be read, and the engine does not read it",
            "BL304": "an explicit mode that no module of the model takes",
        },
    ),
    Group(
        "Pricing",
        "[pricing.md](pricing.md)",
        {
            "BL501": "no measured row answers; the message says which, and what to collect",
            "BL502": "the file of systems is missing, broken or without `systems`",
            "BL510": "a table is empty or holds a latency that is not positive and finite",
            "BL511": "no such table folder",
            "BL512": "unknown table",
            "BL513": "no file holds the table",
            "BL514": "a table file that cannot be read or lacks a column",
            "BL520": "unknown lane for a kind of operation",
            "BL521": "the system has no peak for a lane, so there is no roofline",
            "BL522": "unknown system in a table's question",
            "BL523": "a pass that cannot be: phase, batch, prompt or prefix",
            "BL524": "a bucket of an unknown kind, or without a shape key",
            "BL525": "unknown price mode",
            "BL526": "unknown routing, engine or kind of operation in a pricing option",
            "BL527": "a question to a table that lacks a key, or has one of the wrong type",
        },
    ),
    Group(
        "Findings of `verify`",
        "[verify.md](verify.md)",
        {
            "BL601": "the index and the files disagree",
            "BL602": "stored tensors contradict the declared precision",
            "BL603": "scales that the precision needs are not stored, or scales are stored that it has no use for",
            "BL604": "a module has no stored weight",
            "BL605": "a stored shape or type does not fit the precision",
            "BL606": "a declared module does not exist",
            "BL607": "a file could not be read; the others were",
        },
    ),
    Group(
        "Collecting and merging",
        "[collector.md](collector.md)",
        {
            "BL701": "a journal is damaged before its end",
            "BL702": "the collector has no schema for the table",
            "BL703": "rows without the table's schema",
            "BL704": "rows with values that cannot be",
            "BL705": "a sidecar that does not say where its rows came from",
            "BL706": "a sidecar that cannot be read",
            "BL707": "a part that is no readable parquet file",
            "BL708": "a part without rows",
            "BL709": "a committed part is missing or has changed",
            "BL710": "a table and its sidecar do not belong together",
            "BL711": "a table without provenance",
            "BL712": "another merge holds the lock",
            "BL713": "not a run of this collector",
            "BL714": "a run that cannot be continued: what it measures has changed",
            "BL715": "the table folder cannot be written",
            "BL716": "the list of sources cannot be read",
            "BL717": "nothing of the kind lies in the folder",
            "BL718": "provenance and rows name different things",
            "BL719": "a synthetic collection is not merged",
            "BL720": "the merged table is not old rows plus new rows; nothing was written",
            "BL721": "a case file that cannot be used",
            "BL722": "a lane or table that nothing can be planned for",
            "BL723": "no case of that name",
            "BL724": "an axis or size that is no number",
            "BL725": "not a case plan",
            "BL726": "unknown engine",
            "BL727": "the engine's library is not installed",
            "BL728": "the folder holds a run already",
            "BL729": "another process is collecting into the folder",
            "BL730": "the plan is for another engine, version or system",
            "BL731": "a routing that cannot be",
            "BL732": "the engine has no layer for the table",
            "BL733": "the engine's workers did not start",
            "BL734": "a plan without cases",
            "BL735": "cases that the engine cannot build",
            "BL736": "workers that are not alike",
            "BL737": "the engine needs a CUDA device",
            "BL738": "a device that is not the system's",
            "BL739": "the GPU cannot run the lane",
            "BL740": "sizes that the kernel cannot take",
            "BL741": "a case that names a module which the engine would not match",
            "BL742": "the engine built another layer than the lane asks for",
            "BL743": "the engine runs a kernel that is not known to be the lane's",
            "BL745": "an option that is missing, unknown or does not go with another",
        },
    ),
    Group(
        "Internal",
        "`BITLANE_TRACEBACK=1` shows where",
        {
            "BL900": "a fault of bitlane",
            "BL901": "output that cannot be written, or input that cannot be opened",
        },
    ),
)


def known() -> dict[str, str]:
    """Return every code with its line."""
    return {code: line for group in GROUPS for code, line in group.codes.items()}


def page(code: str) -> str:
    """Return what a code means and where more is written.

    Raises
    ------
    KeyError
        There is no such code.
    """
    for group in GROUPS:
        if code in group.codes:
            return f"{code}: {group.codes[code]}\n\nabout: {group.title.lower()}\nmore:  {group.read}"
    raise KeyError(code)


def reference() -> str:
    """Return ``docs/errors.md``."""
    out = [
        "# Error codes",
        "",
        "Every refusal is one sentence with a code, the place, and a way out; no traceback reaches a user. The exit",
        "code says what kind it is: 2 the question (an option, a name), 3 a rule file, 4 the checkpoint",
        "(unreadable, refused by the engine, or in contradiction with itself), 5 missing measurements, 70 a fault",
        "of bitlane (`BITLANE_TRACEBACK=1` shows where). With `--json` the same stands on standard output as an",
        "object of schema `bitlane.error/1`. `bitlane rules explain CODE` prints a line of this page, and for rule",
        "files (BL100 to BL199) the page in [rule-errors.md](rule-errors.md).",
    ]
    for group in GROUPS:
        out += ["", f"## {group.title}", "", f"More: {group.read}.", "", "| code | |", "|---|---|"]
        out += [f"| {code} | {line} |" for code, line in group.codes.items()]
    return "\n".join(out) + "\n"
