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


class Literal_(Node, frozen=True, kw_only=True, tag="lit"):
    value: int | float | str | bool | None


class Ref(Node, frozen=True, kw_only=True, tag="ref"):
    path: str


class Index(Node, frozen=True, kw_only=True, tag="index"):
    base: Expr
    index: Expr


class Call(Node, frozen=True, kw_only=True, tag="call"):
    function: str
    arguments: tuple[Expr, ...]


class Not(Node, frozen=True, kw_only=True, tag="not"):
    value: Expr


class Minus(Node, frozen=True, kw_only=True, tag="minus"):
    value: Expr


class Binary(Node, frozen=True, kw_only=True, tag="binary"):
    """``operator`` is one of ``or and is is_not < <= > >= + - * / // % contains starts_with ends_with``."""

    operator: str
    left: Expr
    right: Expr


class Member(Node, frozen=True, kw_only=True, tag="member"):
    value: Expr
    choices: tuple[Expr, ...]
    negated: bool = False


class Presence(Node, frozen=True, kw_only=True, tag="presence"):
    value: Expr
    test: Literal["exists", "absent"]


class Conditional(Node, frozen=True, kw_only=True, tag="conditional"):
    then: Expr
    test: Expr
    otherwise: Expr


Expr: TypeAlias = Literal_ | Ref | Index | Call | Not | Minus | Binary | Member | Presence | Conditional

# --- shared -----------------------------------------------------------------


class Statement(Node, frozen=True, kw_only=True, tag="statement"):
    """A statement that a version range may restrict; ``until`` is exclusive."""

    since: str | None = None
    until: str | None = None


class Guarded(Statement, frozen=True, kw_only=True, tag="guarded"):
    when: Expr | None = None


class Let(Statement, frozen=True, kw_only=True, tag="let"):
    name: str
    value: Expr


class Refuse(Guarded, frozen=True, kw_only=True, tag="refuse"):
    message: str
    code: str | None = None
    kinds: tuple[str, ...] = ()


class Report(Guarded, frozen=True, kw_only=True, tag="report"):
    message: str
    code: str | None = None


class Outcome(Node, frozen=True, kw_only=True, tag="outcome"):
    """An algorithm word with its activation attribute, or a refusal with its message."""

    algorithm: str | None = None
    activations: str | None = None
    refusal: str | None = None


# --- loader files -----------------------------------------------------------


class Read(Guarded, frozen=True, kw_only=True, tag="read"):
    file: str
    path: str | None = None


class Builtin(Statement, frozen=True, kw_only=True, tag="builtin"):
    name: str
    shards: tuple[str, ...]


class Alias(Statement, frozen=True, kw_only=True, tag="alias"):
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
    value: Expr


class Algorithm(Guarded, frozen=True, kw_only=True, tag="algorithm"):
    """``words`` empty means `otherwise`."""

    words: tuple[str, ...]
    outcome: Outcome
    kinds: tuple[str, ...] = ()


class Algorithms(Node, frozen=True, kw_only=True, tag="algorithms"):
    rows: tuple[Algorithm, ...]


class Scheme(Guarded, frozen=True, kw_only=True, tag="scheme"):
    outcome: Outcome
    kinds: tuple[str, ...] = ()


class Schemes(Node, frozen=True, kw_only=True, tag="schemes"):
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
    kinds: tuple[str, ...]


class Exclude(Guarded, frozen=True, kw_only=True, tag="exclude"):
    """``unlisted`` turns the test round: what no entry of the listing names is excluded."""

    match: Match
    outcome: Outcome | None = None
    kinds: tuple[str, ...] = ()
    unlisted: bool = False


class Take(Guarded, frozen=True, kw_only=True, tag="take"):
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
    name: str
    steps: tuple[Step, ...]


FormatItem: TypeAlias = (
    Let | Refuse | Report | Source | Algorithms | Schemes | KvCache | Leave | Exclude | Take | Default | Use | Each
)


class Format(Guarded, frozen=True, kw_only=True, tag="format"):
    name: str
    items: tuple[FormatItem, ...]


# --- family files -----------------------------------------------------------


class ConfigScope(Node, frozen=True, kw_only=True, tag="config"):
    paths: tuple[str, ...]


class Require(Node, frozen=True, kw_only=True, tag="require"):
    test: Expr
    message: str


class Option(Node, frozen=True, kw_only=True, tag="option"):
    name: str
    value: Expr


class Module(Guarded, frozen=True, kw_only=True, tag="module"):
    kind: str
    path: str
    shape: tuple[Expr, Expr] | None = None
    flags: tuple[str, ...] = ()
    op: str | None = None
    cls: str | None = None
    options: tuple[Option, ...] = ()


class Operation(Guarded, frozen=True, kw_only=True, tag="op"):
    name: str
    kind: str
    options: tuple[Option, ...] = ()


class Overlap(Guarded, frozen=True, kw_only=True, tag="overlap"):
    name: str
    phase: Literal["prefill", "decode"] | None
    left: tuple[str, ...]
    right: tuple[str, ...]


PartItem: TypeAlias = Let | Module | Operation | Overlap


class Part(Guarded, frozen=True, kw_only=True, tag="part"):
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
    kind: str
    old: str
    new: str


class Fuse(Guarded, frozen=True, kw_only=True, tag="fuse"):
    name: str
    shards: tuple[str, ...]
    unmapped: bool = False


class Never(Guarded, frozen=True, kw_only=True, tag="never"):
    paths: tuple[str, ...]


class Names(Statement, frozen=True, kw_only=True, tag="names"):
    loader: str
    rules: tuple[Rename | Fuse | Never | Let, ...]


# --- lanes ------------------------------------------------------------------


class Lane(Guarded, frozen=True, kw_only=True, tag="lane"):
    name: str
    algorithms: tuple[str, ...]
    kinds: tuple[str, ...] = ()
    approximates: bool = False


class Weights(Statement, frozen=True, kw_only=True, tag="weights"):
    name: str
    bytes_per_weight: Expr


class SystemAlias(Node, frozen=True, kw_only=True, tag="system"):
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
    loader: str
    version: str | None = None
    system: str | None = None


class Expect(Node, frozen=True, kw_only=True, tag="expect"):
    module: str
    algorithm: str
    shape: tuple[Expr, Expr] | None = None
    lane: str | None = None
    by: str | None = None


class ExpectOutcome(Node, frozen=True, kw_only=True, tag="expect_outcome"):
    outcome: str
    text: str | None = None


class Test(Node, frozen=True, kw_only=True, tag="test"):
    name: str
    items: tuple[Given | Under | Expect | ExpectOutcome, ...]
    todo: bool = False


# --- files ------------------------------------------------------------------


class LoaderHead(Node, frozen=True, kw_only=True, tag="loader"):
    name: str
    versions: tuple[str, ...]


class FamilyHead(Node, frozen=True, kw_only=True, tag="family"):
    name: str
    architectures: tuple[str, ...]


class LanesHead(Node, frozen=True, kw_only=True, tag="lanes"):
    pass


class ExtensionHead(Node, frozen=True, kw_only=True, tag="extension"):
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
