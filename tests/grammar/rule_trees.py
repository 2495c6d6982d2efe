"""Trees that the grammar can write: one hypothesis strategy for every node class."""

from __future__ import annotations

import json

import msgspec
from hypothesis import strategies as st

from bitlane.grammar import tree as t
from bitlane.grammar.expected import keywords, spelled


def built(node: type[t.Node], /, **parts: st.SearchStrategy[object]) -> st.SearchStrategy[t.Node]:
    """Build a node; every field must have a strategy, so that one added to the tree is noticed here."""
    missing = set(node.__struct_fields__) - {"at", *parts}
    assert not missing, f"{node.__name__} has fields that no tree here has: {sorted(missing)}"
    return st.builds(node, **parts)


_WORD = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True).filter(lambda w: w not in keywords())
words = st.one_of(st.sampled_from(["hidden_size", "q_proj", "fp8", "a1"]), _WORD)
paths = st.lists(words, min_size=1, max_size=3).map(".".join)
strings = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
names = st.lists(paths, min_size=1, max_size=3).map(tuple)
versions = st.one_of(st.none(), st.sampled_from(["0.30", "0.31.0", "main"]))
_reals = st.floats(0, 1e15, allow_subnormal=False).filter(lambda v: v == 0 or v > 1e-9)


def _expressions(inner: st.SearchStrategy[t.Expr]) -> st.SearchStrategy[t.Expr]:
    logic = ["or", "and", "is", "is_not", "<", "<=", ">", ">=", "contains", "starts_with", "ends_with"]
    operators = [*logic, "+", "-", "*", "/", "//", "%"]
    return st.one_of(
        built(t.Index, base=inner, index=inner),
        built(t.Call, function=paths, arguments=st.lists(inner, min_size=1, max_size=3).map(tuple)),
        built(t.Not, value=inner),
        built(t.Minus, value=inner),
        built(t.Binary, operator=st.sampled_from(operators), left=inner, right=inner),
        built(t.Member, value=inner, choices=st.lists(inner, min_size=1, max_size=3).map(tuple), negated=st.booleans()),
        built(t.Presence, value=inner, test=st.sampled_from(["exists", "absent"])),
        built(t.Conditional, then=inner, test=inner, otherwise=inner),
    )


literals = built(t.Constant, value=st.one_of(st.integers(0, (1 << 63) - 1), _reals, strings, st.booleans(), st.none()))
expressions = st.recursive(st.one_of(literals, built(t.Ref, path=paths)), _expressions, max_leaves=12)

_range = {"since": versions, "until": versions}
_when = {"when": st.one_of(st.none(), expressions)}
_guard = {**_range, **_when}
_kinds = {"kinds": st.one_of(st.just(()), names)}
_algorithms = built(t.Outcome, algorithm=paths, activations=st.one_of(st.none(), paths), refusal=st.none())
_refusals = built(t.Outcome, algorithm=st.none(), activations=st.none(), refusal=strings)
outcomes = st.one_of(_algorithms, _refusals)
quantifiers = st.one_of(st.none(), st.sampled_from(spelled("QUANTIFIER")))
_tail = {
    "on": st.one_of(st.just(("path",)), names),
    "containing": st.one_of(st.none(), strings),
    "ending": st.lists(strings, max_size=2).map(tuple),
    "quantifier": quantifiers,
}
matches = st.one_of(
    built(t.Match, by=names, named=st.just(()), **_tail),
    built(t.Match, by=st.just(()), named=st.lists(strings, min_size=1, max_size=3).map(tuple), **_tail),
)


def _some(item: st.SearchStrategy[t.Node], size: int = 3) -> st.SearchStrategy[tuple[t.Node, ...]]:
    return st.lists(item, max_size=size).map(tuple)


lets = built(t.Let, name=paths, value=expressions, **_range)
refusals = built(t.Refuse, message=strings, code=st.one_of(st.none(), words), **_kinds, **_guard)
reports = built(t.Report, message=strings, code=st.one_of(st.none(), words), **_guard)

_flags = st.lists(st.sampled_from(spelled("SOURCE_FLAG")), max_size=2).map(tuple)
_also = st.lists(built(t.Also, old=strings, new=strings, raw=st.booleans()), max_size=2).map(tuple)


def _source(kind: str, key: st.SearchStrategy[str | None]) -> st.SearchStrategy[t.Source]:
    return built(t.Source, kind=st.just(kind), paths=names, key=key, flags=_flags, also=_also, **_guard)


sources = st.one_of(
    _source("exclusions", st.none()), _source("listing", paths), _source("groups", st.one_of(st.none(), paths))
)
steps = st.one_of(
    built(t.Leave, kinds=names, **_guard),
    built(t.Exclude, match=matches, outcome=st.one_of(st.none(), outcomes), unlisted=st.booleans(), **_kinds, **_guard),
    built(t.Take, source=st.sampled_from(["listing", "group"]), match=matches, **_kinds, **_guard),
    built(t.Default, outcome=outcomes, group=st.none(), evidence=st.one_of(st.just(()), names), **_kinds, **_guard),
    built(t.Default, outcome=st.builds(t.Outcome), group=paths, evidence=st.just(()), **_kinds, **_guard),
    built(t.Each, on=names, chain=paths, comparing=_some(expressions), **_kinds, **_guard),
    built(t.Use, chain=paths),
)
_algorithm = built(t.Algorithm, words=st.lists(strings, max_size=2).map(tuple), outcome=outcomes, **_kinds, **_guard)
_scheme = built(t.Scheme, outcome=outcomes, **_kinds, **_guard)


loader_statements = st.one_of(
    built(t.Read, file=paths, path=st.one_of(st.none(), paths), **_guard),
    built(t.Builtin, name=paths, shards=names, **_range),
    built(t.Alias, path=strings, other=strings, **_range),
    built(t.Chain, name=paths, steps=_some(st.one_of(steps, refusals))),
    built(
        t.Format,
        name=paths,
        items=_some(
            st.one_of(
                lets,
                refusals,
                reports,
                sources,
                steps,
                built(t.Algorithms, rows=_some(_algorithm)),
                built(t.Schemes, rows=_some(_scheme)),
                built(t.KvCache, value=expressions, **_guard),
            ),
            4,
        ),
        **_guard,
    ),
)

_options = _some(built(t.Option, name=words, value=expressions))
modules = built(
    t.Module,
    kind=st.sampled_from(["linear", "experts", "embed", "lm_head"]),
    path=paths,
    shape=st.one_of(st.none(), st.tuples(expressions, expressions)),
    flags=st.lists(st.sampled_from(spelled("MODULE_FLAG")), max_size=2).map(tuple),
    op=st.one_of(st.none(), paths),
    cls=st.one_of(st.none(), paths),
    options=_options,
    **_guard,
)
operations = built(t.Operation, name=paths, kind=paths, options=_options, **_guard)
overlaps = built(
    t.Overlap, name=paths, phase=st.sampled_from([None, "prefill", "decode"]), left=names, right=names, **_guard
)
requires = built(t.Require, test=expressions, message=strings)
parts = built(t.Part, name=paths, items=_some(st.one_of(lets, modules, operations, overlaps)), **_guard)
_renames = ["prefix", "suffix", "substring", "regex", "path_prefix", "path_suffix", "path_substring", "class"]
_rules = st.one_of(
    lets,
    built(t.Rename, kind=st.sampled_from(spelled("RENAME")), old=strings, new=strings, **_guard),
    built(t.Fuse, name=paths, shards=names, unmapped=st.booleans(), **_guard),
    built(t.Never, paths=names, **_guard),
    built(t.Asked, path=paths, name=strings, **{k: v for k, v in _guard.items() if k != "when"}),
    built(t.Lacks, architectures=names, **{k: v for k, v in _guard.items() if k != "when"}),
)
family_statements = st.one_of(
    built(t.ConfigScope, paths=names),
    requires,
    modules,
    operations,
    overlaps,
    parts,
    built(
        t.Stack,
        name=paths,
        count=expressions,
        prefix=strings,
        flags=st.sampled_from([(), ("unpriced",)]),
        items=_some(st.one_of(lets, requires, parts, modules, operations, overlaps)),
        **_when,
        since=st.none(),
        until=st.none(),
    ),
    built(t.Names, loader=paths, rules=_some(_rules), **_range),
)
lane_statements = st.one_of(
    built(t.Lane, name=paths, algorithms=names, approximates=st.booleans(), **_kinds, **_guard),
    built(t.Weights, name=paths, bytes_per_weight=expressions, **_range),
    built(t.SystemAlias, alias=paths, name=paths),
)

_json_numbers = st.one_of(st.integers(-(1 << 62), 1 << 62), st.integers(-1000, 1000).map(lambda n: n / 8))
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), _json_numbers, strings),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(strings, inner, max_size=4)),
    max_leaves=15,
)
tests = built(
    t.Test,
    name=strings,
    todo=st.booleans(),
    items=_some(
        st.one_of(
            built(t.Given, file=paths, text=json_values.map(json.dumps)),
            built(t.Under, loader=paths, version=versions, system=st.one_of(st.none(), paths)),
            built(
                t.Expect,
                module=st.one_of(paths, strings),
                algorithm=paths,
                shape=st.one_of(st.none(), st.tuples(expressions, expressions)),
                lane=st.one_of(st.none(), paths),
                by=st.one_of(st.none(), strings),
            ),
            built(
                t.ExpectOutcome,
                outcome=st.sampled_from(["refusal", "conflict", "report", "unsupported"]),
                text=st.one_of(st.none(), strings),
            ),
        ),
        4,
    ),
)
heads = st.one_of(
    built(t.LoaderHead, name=paths, versions=st.lists(strings, min_size=1, max_size=3).map(tuple)),
    built(t.FamilyHead, name=paths, architectures=st.one_of(st.just(()), names)),
    built(t.LanesHead),
    built(t.ExtensionHead, kind=st.sampled_from(["loader", "family", "lanes"]), name=st.one_of(st.none(), paths)),
)
statements = st.one_of(lets, refusals, reports, loader_statements, family_statements, lane_statements, tests)


_files = built(t.File, language=st.just(1), head=heads, items=_some(statements, 5))


@st.composite
def files(draw: st.DrawFn) -> t.File:
    """Draw a file. A copy, since hypothesis prints objects that it built itself in exponential time."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(draw(_files)), type=t.File)
