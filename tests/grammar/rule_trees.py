"""Trees that the grammar can write: one hypothesis strategy for every node class."""

from __future__ import annotations

import json

import msgspec
from hypothesis import strategies as st

from bitlane.grammar import tree as t
from bitlane.grammar.messages import keywords

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
        st.builds(t.Index, base=inner, index=inner),
        st.builds(t.Call, function=paths, arguments=st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(t.Not, value=inner),
        st.builds(t.Minus, value=inner),
        st.builds(t.Binary, operator=st.sampled_from(operators), left=inner, right=inner),
        st.builds(
            t.Member, value=inner, choices=st.lists(inner, min_size=1, max_size=3).map(tuple), negated=st.booleans()
        ),
        st.builds(t.Presence, value=inner, test=st.sampled_from(["exists", "absent"])),
        st.builds(t.Conditional, then=inner, test=inner, otherwise=inner),
    )


literals = st.builds(
    t.Literal_, value=st.one_of(st.integers(0, (1 << 63) - 1), _reals, strings, st.booleans(), st.none())
)
expressions = st.recursive(st.one_of(literals, st.builds(t.Ref, path=paths)), _expressions, max_leaves=12)

_range = {"since": versions, "until": versions}
_when = {"when": st.one_of(st.none(), expressions)}
_guard = {**_range, **_when}
_kinds = {"kinds": st.one_of(st.just(()), names)}
_algorithms = st.builds(t.Outcome, algorithm=paths, activations=st.one_of(st.none(), paths))
outcomes = st.one_of(_algorithms, st.builds(t.Outcome, refusal=strings))
quantifiers = st.sampled_from([None, "any", "all", "all_or_refuse", "first", "agree", "listed_agree"])
_tail = {
    "on": st.one_of(st.just(("path",)), names),
    "containing": st.one_of(st.none(), strings),
    "quantifier": quantifiers,
}
matches = st.one_of(
    st.builds(t.Match, by=names, **_tail),
    st.builds(t.Match, named=st.lists(strings, min_size=1, max_size=3).map(tuple), **_tail),
)

lets = st.builds(t.Let, name=paths, value=expressions, **_range)
refusals = st.builds(t.Refuse, message=strings, code=st.one_of(st.none(), words), **_kinds, **_guard)
reports = st.builds(t.Report, message=strings, code=st.one_of(st.none(), words), **_guard)

_flags = st.lists(st.sampled_from(["unmapped", "split_stars", "dotted_only", "upper"]), max_size=2).map(tuple)
_also = st.lists(st.builds(t.Also, old=strings, new=strings, raw=st.booleans()), max_size=2).map(tuple)


def _source(kind: str, key: st.SearchStrategy[str | None]) -> st.SearchStrategy[t.Source]:
    return st.builds(t.Source, kind=st.just(kind), paths=names, key=key, flags=_flags, also=_also, **_guard)


sources = st.one_of(
    _source("exclusions", st.none()), _source("listing", paths), _source("groups", st.one_of(st.none(), paths))
)
steps = st.one_of(
    st.builds(t.Leave, kinds=names, **_guard),
    st.builds(
        t.Exclude, match=matches, outcome=st.one_of(st.none(), outcomes), unlisted=st.booleans(), **_kinds, **_guard
    ),
    st.builds(t.Take, source=st.sampled_from(["listing", "group"]), match=matches, **_kinds, **_guard),
    st.builds(t.Default, outcome=outcomes, evidence=st.one_of(st.just(()), names), **_kinds, **_guard),
    st.builds(t.Each, on=names, chain=paths, **_kinds, **_guard),
    st.builds(t.Use, chain=paths),
)
_algorithm = st.builds(
    t.Algorithm, words=st.lists(strings, max_size=2).map(tuple), outcome=outcomes, **_kinds, **_guard
)
_scheme = st.builds(t.Scheme, outcome=outcomes, **_kinds, **_guard)


def _some(item: st.SearchStrategy[t.Node], size: int = 3) -> st.SearchStrategy[tuple[t.Node, ...]]:
    return st.lists(item, max_size=size).map(tuple)


loader_statements = st.one_of(
    st.builds(t.Read, file=paths, path=st.one_of(st.none(), paths), **_guard),
    st.builds(t.Builtin, name=paths, shards=names, **_range),
    st.builds(t.Alias, path=strings, other=strings, **_range),
    st.builds(t.Chain, name=paths, steps=_some(st.one_of(steps, refusals))),
    st.builds(
        t.Format,
        name=paths,
        items=_some(
            st.one_of(
                lets,
                refusals,
                reports,
                sources,
                steps,
                st.builds(t.Algorithms, rows=_some(_algorithm)),
                st.builds(t.Schemes, rows=_some(_scheme)),
                st.builds(t.KvCache, value=expressions, **_guard),
            ),
            4,
        ),
        **_guard,
    ),
)

_options = _some(st.builds(t.Option, name=words, value=expressions))
modules = st.builds(
    t.Module,
    kind=st.sampled_from(["linear", "experts", "embed", "lm_head"]),
    path=paths,
    shape=st.one_of(st.none(), st.tuples(expressions, expressions)),
    flags=st.lists(st.sampled_from(["column", "row", "replicated", "unpriced", "plain"]), max_size=2).map(tuple),
    op=st.one_of(st.none(), paths),
    cls=st.one_of(st.none(), paths),
    options=_options,
    **_guard,
)
operations = st.builds(t.Operation, name=paths, kind=paths, options=_options, **_guard)
overlaps = st.builds(
    t.Overlap, name=paths, phase=st.sampled_from([None, "prefill", "decode"]), left=names, right=names, **_guard
)
requires = st.builds(t.Require, test=expressions, message=strings)
parts = st.builds(t.Part, name=paths, items=_some(st.one_of(lets, modules, operations, overlaps)), **_guard)
_renames = ["prefix", "suffix", "substring", "regex", "path_prefix", "path_suffix", "path_substring", "class"]
_rules = st.one_of(
    lets,
    st.builds(t.Rename, kind=st.sampled_from(_renames), old=strings, new=strings, **_guard),
    st.builds(t.Fuse, name=paths, shards=names, unmapped=st.booleans(), **_guard),
    st.builds(t.Never, paths=names, **_guard),
)
family_statements = st.one_of(
    st.builds(t.ConfigScope, paths=names),
    requires,
    modules,
    operations,
    overlaps,
    parts,
    st.builds(
        t.Stack,
        name=paths,
        count=expressions,
        prefix=strings,
        flags=st.sampled_from([(), ("unpriced",)]),
        items=_some(st.one_of(lets, requires, parts, modules, operations, overlaps)),
        **_when,
    ),
    st.builds(t.Names, loader=paths, rules=_some(_rules), **_range),
)
lane_statements = st.one_of(
    st.builds(t.Lane, name=paths, algorithms=names, approximates=st.booleans(), **_kinds, **_guard),
    st.builds(t.Weights, name=paths, bytes_per_weight=expressions, **_range),
    st.builds(t.SystemAlias, alias=paths, name=paths),
)

_json_numbers = st.one_of(st.integers(-(1 << 62), 1 << 62), st.integers(-1000, 1000).map(lambda n: n / 8))
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), _json_numbers, strings),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(strings, inner, max_size=4)),
    max_leaves=15,
)
tests = st.builds(
    t.Test,
    name=strings,
    todo=st.booleans(),
    items=_some(
        st.one_of(
            st.builds(t.Given, file=paths, text=json_values.map(json.dumps)),
            st.builds(t.Under, loader=paths, version=versions, system=st.one_of(st.none(), paths)),
            st.builds(
                t.Expect,
                module=st.one_of(paths, strings),
                algorithm=paths,
                shape=st.one_of(st.none(), st.tuples(expressions, expressions)),
                lane=st.one_of(st.none(), paths),
                by=st.one_of(st.none(), strings),
            ),
            st.builds(
                t.ExpectOutcome,
                outcome=st.sampled_from(["refusal", "conflict", "report", "unsupported"]),
                text=st.one_of(st.none(), strings),
            ),
        ),
        4,
    ),
)
heads = st.one_of(
    st.builds(t.LoaderHead, name=paths, versions=st.lists(strings, min_size=1, max_size=3).map(tuple)),
    st.builds(t.FamilyHead, name=paths, architectures=st.one_of(st.just(()), names)),
    st.builds(t.LanesHead),
    st.builds(t.ExtensionHead, kind=st.sampled_from(["loader", "family", "lanes"]), name=st.one_of(st.none(), paths)),
)
statements = st.one_of(lets, refusals, reports, loader_statements, family_statements, lane_statements, tests)


def _fresh(tree: t.File) -> t.File:
    """Copy a tree: hypothesis prints objects that it built itself in exponential time."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(tree), type=t.File)


files = st.builds(t.File, language=st.just(1), head=heads, items=_some(statements, 5)).map(_fresh)
