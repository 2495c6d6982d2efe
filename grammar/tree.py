"""The syntax tree of a rule file: immutable, typed, serialisable, positions kept on every node."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

Activation = Literal["static", "dynamic", "none", ""]


class Span(msgspec.Struct, frozen=True, array_like=True):
    """1-based line and column of the first character, and of the character after the last."""

    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0


class Node(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Anything with a place in a file."""

    at: Span = Span()


# --- expressions ------------------------------------------------------------


class Constant(Node, frozen=True, kw_only=True, tag="lit"):
    """A number, a text, true, false or null."""

    value: int | float | str | bool | None


class Ref(Node, frozen=True, kw_only=True, tag="ref"):
    """A dotted name: a variable, a `let`, or a key of the metadata."""

    path: str


class Index(Node, frozen=True, kw_only=True, tag="index"):
    """One element of a list, text or object."""

    base: Expr
    index: Expr


class Call(Node, frozen=True, kw_only=True, tag="call"):
    """One of the built-in functions."""

    function: str
    arguments: tuple[Expr, ...]


class Not(Node, frozen=True, kw_only=True, tag="not"):
    """Logical negation."""

    value: Expr


class Minus(Node, frozen=True, kw_only=True, tag="minus"):
    """Arithmetic negation."""

    value: Expr


class Binary(Node, frozen=True, kw_only=True, tag="binary"):
    """``operator`` is one of ``or and is is_not < <= > >= + - * / // % contains starts_with ends_with``."""

    operator: str
    left: Expr
    right: Expr


class Member(Node, frozen=True, kw_only=True, tag="member"):
    """`value in (a, b)` or `value not in (a, b)`."""

    value: Expr
    choices: tuple[Expr, ...]
    negated: bool = False


class Presence(Node, frozen=True, kw_only=True, tag="presence"):
    """`value exists` or `value absent`; null counts as absent."""

    value: Expr
    test: Literal["exists", "absent"]


class Conditional(Node, frozen=True, kw_only=True, tag="conditional"):
    """`then if test else otherwise`."""

    then: Expr
    test: Expr
    otherwise: Expr


Expr: TypeAlias = Constant | Ref | Index | Call | Not | Minus | Binary | Member | Presence | Conditional

# --- shared -----------------------------------------------------------------


class Statement(Node, frozen=True, kw_only=True, tag="statement"):
    """A statement that a version range may restrict; ``until`` is exclusive."""

    since: str | None = None
    until: str | None = None


class Guarded(Statement, frozen=True, kw_only=True, tag="guarded"):
    """A statement that a `when` condition may restrict."""

    when: Expr | None = None


class Let(Statement, frozen=True, kw_only=True, tag="let"):
    """A named expression, evaluated when it is first used."""

    name: str
    value: Expr


class Refuse(Guarded, frozen=True, kw_only=True, tag="refuse"):
    """The engine stops, with this message, when the condition holds."""

    message: str
    code: str | None = None
    kinds: tuple[str, ...] = ()


class Report(Guarded, frozen=True, kw_only=True, tag="report"):
    """A finding that changes no answer."""

    message: str
    code: str | None = None


class Outcome(Node, frozen=True, kw_only=True, tag="outcome"):
    """An algorithm word with its activation attribute, or a refusal with its message."""

    algorithm: str | None = None
    activations: str | None = None
    refusal: str | None = None


# --- loader files -----------------------------------------------------------


class Read(Guarded, frozen=True, kw_only=True, tag="read"):
    """A place where metadata may stand."""

    file: str
    path: str | None = None


class Builtin(Statement, frozen=True, kw_only=True, tag="builtin"):
    """Shards of a fused name that the loader knows by itself."""

    name: str
    shards: tuple[str, ...]


class Alias(Statement, frozen=True, kw_only=True, tag="alias"):
    """Another spelling under which listings are searched."""

    path: str
    other: str


class Also(Node, frozen=True, kw_only=True, tag="also"):
    """An entry that starts with ``old`` counts once more with ``new`` in its place; ``raw``: before it is renamed."""

    old: str
    new: str
    raw: bool = False


class Source(Guarded, frozen=True, kw_only=True, tag="source"):
    """Where exclusions, a listing or groups stand; the first present path of the first true source counts.

    Groups without a ``key`` are targeted by their own names.
    """

    kind: Literal["exclusions", "listing", "groups"]
    paths: tuple[str, ...]
    key: str | None = None
    flags: tuple[str, ...] = ()
    also: tuple[Also, ...] = ()


class KvCache(Guarded, frozen=True, kw_only=True, tag="kv_cache"):
    """Precision of the key-value cache that the metadata declares."""

    value: Expr


class Algorithm(Guarded, frozen=True, kw_only=True, tag="algorithm"):
    """``words`` empty means `otherwise`."""

    words: tuple[str, ...]
    outcome: Outcome
    kinds: tuple[str, ...] = ()


class Algorithms(Node, frozen=True, kw_only=True, tag="algorithms"):
    """The table from listing words to algorithms."""

    rows: tuple[Algorithm, ...]


class Scheme(Guarded, frozen=True, kw_only=True, tag="scheme"):
    """One way to read a group's numbers as an algorithm."""

    outcome: Outcome
    kinds: tuple[str, ...] = ()


class Schemes(Node, frozen=True, kw_only=True, tag="schemes"):
    """The table from groups to algorithms."""

    rows: tuple[Scheme, ...]


class Match(Node, frozen=True, kw_only=True, tag="match"):
    """How entries meet a module: pattern kinds (or literal patterns), what they are tried on, and how many must hit."""

    by: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    on: tuple[str, ...] = ("path",)
    containing: str | None = None
    ending: tuple[str, ...] = ()
    quantifier: str | None = None


class Leave(Guarded, frozen=True, kw_only=True, tag="leave"):
    """Modules of these kinds stay unquantized."""

    kinds: tuple[str, ...]


class Exclude(Guarded, frozen=True, kw_only=True, tag="exclude"):
    """``unlisted`` turns the test round: what no entry of the listing names is excluded."""

    match: Match
    outcome: Outcome | None = None
    kinds: tuple[str, ...] = ()
    unlisted: bool = False


class Take(Guarded, frozen=True, kw_only=True, tag="take"):
    """Modules that the listing or a group names."""

    source: Literal["listing", "group"]
    match: Match
    kinds: tuple[str, ...] = ()


class Default(Guarded, frozen=True, kw_only=True, tag="default"):
    """With ``group``, the schemes read the object at that path for what nothing before decided."""

    outcome: Outcome
    group: str | None = None
    evidence: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


class Use(Node, frozen=True, kw_only=True, tag="use"):
    """Insert a chain."""

    chain: str


class Each(Guarded, frozen=True, kw_only=True, tag="each"):
    """Every name of ``on`` is decided by the chain as a module of its own; all must say the same.

    ``comparing`` says what of their groups must be the same; without it the whole declaration must.
    """

    on: tuple[str, ...]
    chain: str
    comparing: tuple[Expr, ...] = ()
    kinds: tuple[str, ...] = ()


Step: TypeAlias = Leave | Exclude | Take | Default | Use | Each | Refuse


class Chain(Node, frozen=True, kw_only=True, tag="chain"):
    """Steps that several formats share."""

    name: str
    steps: tuple[Step, ...]


FormatItem: TypeAlias = (
    Let | Refuse | Report | Source | Algorithms | Schemes | KvCache | Leave | Exclude | Take | Default | Use | Each
)


class Format(Guarded, frozen=True, kw_only=True, tag="format"):
    """One metadata format: its condition, sources, tables and chain."""

    name: str
    items: tuple[FormatItem, ...]


# --- family files -----------------------------------------------------------


class ConfigScope(Node, frozen=True, kw_only=True, tag="config"):
    """Where bare config keys are looked up."""

    paths: tuple[str, ...]


class Require(Node, frozen=True, kw_only=True, tag="require"):
    """What a config must say for the family to make sense."""

    test: Expr
    message: str


class Option(Node, frozen=True, kw_only=True, tag="option"):
    """A named size."""

    name: str
    value: Expr


class Module(Guarded, frozen=True, kw_only=True, tag="module"):
    """A weight-bearing module in checkpoint spelling."""

    kind: str
    path: str
    shape: tuple[Expr, Expr] | None = None
    flags: tuple[str, ...] = ()
    op: str | None = None
    cls: str | None = None
    options: tuple[Option, ...] = ()


class Operation(Guarded, frozen=True, kw_only=True, tag="op"):
    """An operation without weights."""

    name: str
    kind: str
    options: tuple[Option, ...] = ()


class Overlap(Guarded, frozen=True, kw_only=True, tag="overlap"):
    """Operations that an engine runs side by side."""

    name: str
    phase: Literal["prefill", "decode"] | None
    left: tuple[str, ...]
    right: tuple[str, ...]


PartItem: TypeAlias = Let | Module | Operation | Overlap


class Part(Guarded, frozen=True, kw_only=True, tag="part"):
    """What a layer has when its condition holds."""

    name: str
    items: tuple[PartItem, ...]


class Stack(Guarded, frozen=True, kw_only=True, tag="stack"):
    """A run of layers: count, path prefix with ``{i}``, and the parts that each layer may have."""

    name: str
    count: Expr
    prefix: str
    flags: tuple[str, ...] = ()
    items: tuple[Let | Require | Part | Module | Operation | Overlap, ...] = ()


class Rename(Guarded, frozen=True, kw_only=True, tag="rename"):
    """A rename of an engine's model class."""

    kind: str
    old: str
    new: str


class Fuse(Guarded, frozen=True, kw_only=True, tag="fuse"):
    """Shards that an engine fuses into one module."""

    name: str
    shards: tuple[str, ...]
    unmapped: bool = False


class Never(Guarded, frozen=True, kw_only=True, tag="never"):
    """Modules that an engine builds without a quantization config."""

    paths: tuple[str, ...]


class Asked(Statement, frozen=True, kw_only=True, tag="asked"):
    """Modules that an engine looks up in the metadata under another name than their own; empty: under none."""

    path: str
    name: str


class Lacks(Statement, frozen=True, kw_only=True, tag="lacks"):
    """Model classes that an engine does not have: it refuses their checkpoints, whatever their metadata."""

    architectures: tuple[str, ...]


class Names(Statement, frozen=True, kw_only=True, tag="names"):
    """What one engine calls, fuses and exempts."""

    loader: str
    rules: tuple[Rename | Fuse | Never | Asked | Lacks | Let, ...]


# --- lanes ------------------------------------------------------------------


class Lane(Guarded, frozen=True, kw_only=True, tag="lane"):
    """What a GPU runs for an algorithm."""

    name: str
    algorithms: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    approximates: bool = False


class Weights(Statement, frozen=True, kw_only=True, tag="weights"):
    """Stored bytes per weight of a lane, scales included."""

    name: str
    bytes_per_weight: Expr


class SystemAlias(Node, frozen=True, kw_only=True, tag="system"):
    """A short name of a GPU system."""

    alias: str
    name: str


# --- tests ------------------------------------------------------------------


class Given(Node, frozen=True, kw_only=True, tag="given"):
    """One metadata file of the test's checkpoint; ``text`` is canonical JSON."""

    file: str
    text: str

    def value(self) -> Any:
        """Decode the JSON."""
        return msgspec.json.decode(self.text)


class Under(Node, frozen=True, kw_only=True, tag="under"):
    """The loader, version and system of a test."""

    loader: str
    version: str | None = None
    system: str | None = None


class Expect(Node, frozen=True, kw_only=True, tag="expect"):
    """One module's expected answer."""

    module: str
    algorithm: str
    shape: tuple[Expr, Expr] | None = None
    lane: str | None = None
    by: str | None = None


class ExpectOutcome(Node, frozen=True, kw_only=True, tag="expect_outcome"):
    """An expected refusal, conflict, finding or unsupported module."""

    outcome: str
    text: str | None = None


class Test(Node, frozen=True, kw_only=True, tag="test"):
    """A small checkpoint with its expected answers."""

    name: str
    items: tuple[Given | Under | Expect | ExpectOutcome, ...]
    todo: bool = False


# --- files ------------------------------------------------------------------


class LoaderHead(Node, frozen=True, kw_only=True, tag="loader"):
    """`loader NAME VERSIONS`."""

    name: str
    versions: tuple[str, ...]


class FamilyHead(Node, frozen=True, kw_only=True, tag="family"):
    """`family NAME for CLASSES`."""

    name: str
    architectures: tuple[str, ...]


class LanesHead(Node, frozen=True, kw_only=True, tag="lanes"):
    """`lanes`."""


class ExtensionHead(Node, frozen=True, kw_only=True, tag="extension"):
    """`extend KIND NAME`: an overlay."""

    kind: Literal["loader", "family", "lanes"]
    name: str | None = None


Head: TypeAlias = LoaderHead | FamilyHead | LanesHead | ExtensionHead
Item: TypeAlias = (
    Let
    | Read
    | Refuse
    | Report
    | Builtin
    | Alias
    | Chain
    | Format
    | ConfigScope
    | Require
    | Stack
    | Part
    | Module
    | Operation
    | Overlap
    | Names
    | Lane
    | Weights
    | SystemAlias
    | Test
)


class File(Node, frozen=True, kw_only=True, tag="file"):
    """One rule file: language version, what it describes, and its statements in order."""

    language: int
    head: Head
    items: tuple[Item, ...]
