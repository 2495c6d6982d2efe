"""One canonical line for every statement: a block's is its head, without the brace."""

from __future__ import annotations

import re
from functools import singledispatch
from typing import TYPE_CHECKING, Final

from . import text
from . import tree as t

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")
_OUTCOMES: Final = ("refusal", "conflict", "report", "unsupported")


@singledispatch
def statement(node: t.Node) -> str:
    """Write a statement, or the head of a block.

    Raises
    ------
    TypeError
        For a node that is no statement.
    """
    raise TypeError(f"{type(node).__name__} is no statement")


def _join(*parts: str) -> str:
    return " ".join(p for p in parts if p)


def _options(options: Sequence[t.Option]) -> str:
    return " ".join(f"{o.name} = {text.expression(o.value)}" for o in options)


def _shape(shape: tuple[t.Expr, t.Expr] | None) -> str:
    return "" if shape is None else f"[{text.expression(shape[0])}, {text.expression(shape[1])}]"


# --- heads of files -----------------------------------------------------------


@statement.register
def _(node: t.LoaderHead) -> str:
    return _join("loader", node.name, *(text.quote(v) for v in node.versions))


@statement.register
def _(node: t.FamilyHead) -> str:
    return f"family {node.name}" + (f" for {', '.join(node.architectures)}" if node.architectures else "")


@statement.register
def _(node: t.LanesHead) -> str:  # noqa: ARG001 - singledispatch looks at its type
    return "lanes"


@statement.register
def _(node: t.ExtensionHead) -> str:
    return _join("extend", node.kind, node.name or "")


# --- shared and loader files ----------------------------------------------------


@statement.register
def _(node: t.Let) -> str:
    return f"let {node.name} = {text.expression(node.value)}" + text.guard(node)


@statement.register
def _(node: t.Read) -> str:
    return _join("read", node.file, node.path or "") + text.guard(node)


@statement.register
def _(node: t.Report) -> str:
    code = f" code {node.code}" if node.code else ""
    return f"report {text.quote(node.message)}{code}" + text.guard(node)


@statement.register
def _(node: t.Builtin) -> str:
    return f"builtin {node.name} = {' '.join(node.shards)}" + text.guard(node)


@statement.register
def _(node: t.Alias) -> str:
    return f"alias {text.quote(node.path)} as {text.quote(node.other)}" + text.guard(node)


@statement.register
def _(node: t.Chain) -> str:
    return f"chain {node.name}"


@statement.register
def _(node: t.Format) -> str:
    return f"format {node.name}" + text.guard(node)


@statement.register
def _(node: t.Source) -> str:
    word = {"listing": "algorithm", "groups": "targets"}.get(node.kind, "")
    key = f"{word} {node.key}" if node.key is not None else ""
    also = [f"{'also_raw' if a.raw else 'also'} {text.quote(a.old)} as {text.quote(a.new)}" for a in node.also]
    return _join(node.kind, " | ".join(node.paths), key, *node.flags, *also) + text.guard(node)


@statement.register
def _(node: t.KvCache) -> str:
    return f"kv_cache {text.expression(node.value)}" + text.guard(node)


@statement.register
def _(node: t.Algorithms) -> str:  # noqa: ARG001 - singledispatch looks at its type
    return "algorithms"


@statement.register
def _(node: t.Algorithm) -> str:
    words = ", ".join(text.quote(w) for w in node.words) or "otherwise"
    return f"{words} -> {text.outcome(node.outcome)}" + text.guard(node, node.kinds)


@statement.register
def _(node: t.Schemes) -> str:  # noqa: ARG001 - singledispatch looks at its type
    return "schemes"


@statement.register
def _(node: t.Scheme) -> str:
    return text.outcome(node.outcome) + text.guard(node, node.kinds)


@statement.register(t.Leave)
@statement.register(t.Exclude)
@statement.register(t.Take)
@statement.register(t.Default)
@statement.register(t.Use)
@statement.register(t.Each)
@statement.register(t.Refuse)
def _(node: t.Step) -> str:
    return text.step(node)


# --- family files ---------------------------------------------------------------


@statement.register
def _(node: t.ConfigScope) -> str:
    return f"config {' | '.join(node.paths)}"


@statement.register
def _(node: t.Require) -> str:
    return f"require {text.expression(node.test)} else {text.quote(node.message)}"


@statement.register
def _(node: t.Stack) -> str:
    head = _join("stack", node.name, "of", text.expression(node.count), "at", text.quote(node.prefix), *node.flags)
    return head + text.guard(node)


@statement.register
def _(node: t.Part) -> str:
    return f"part {node.name}" + text.guard(node)


@statement.register
def _(node: t.Module) -> str:
    op = f"op {node.op}" if node.op is not None else ""
    cls = f"class {node.cls}" if node.cls is not None else ""
    head = _join(node.kind, node.path, _shape(node.shape), *node.flags, op, cls, _options(node.options))
    return head + text.guard(node)


@statement.register
def _(node: t.Operation) -> str:
    return _join("op", node.name, node.kind, _options(node.options)) + text.guard(node)


@statement.register
def _(node: t.Overlap) -> str:
    left, right = " ".join(node.left), " ".join(node.right)
    return _join("overlap", node.name, node.phase or "", f"{{ {left} }} with {{ {right} }}") + text.guard(node)


@statement.register
def _(node: t.Names) -> str:
    return f"names {node.loader}" + text.guard(node)


@statement.register
def _(node: t.Rename) -> str:
    return f"{node.kind} {text.quote(node.old)} as {text.quote(node.new)}" + text.guard(node)


@statement.register
def _(node: t.Fuse) -> str:
    flag = " unmapped" if node.unmapped else ""
    return f"fuse {node.name} = {' '.join(node.shards)}{flag}" + text.guard(node)


@statement.register
def _(node: t.Never) -> str:
    return f"never {', '.join(node.paths)}" + text.guard(node)


@statement.register
def _(node: t.Asked) -> str:
    return f"asked {node.path} as {text.quote(node.name)}" + text.guard(node)


@statement.register
def _(node: t.Lacks) -> str:
    return f"lacks {', '.join(node.architectures)}" + text.guard(node)


# --- lanes ------------------------------------------------------------------------


@statement.register
def _(node: t.Lane) -> str:
    head = f"lane {node.name} from {', '.join(node.algorithms)}"
    return head + text.guard(node, node.kinds, "approximates" if node.approximates else "")


@statement.register
def _(node: t.Weights) -> str:
    return f"weights {node.name} = {text.expression(node.bytes_per_weight)}" + text.guard(node)


@statement.register
def _(node: t.SystemAlias) -> str:
    return f"system {node.alias} as {node.name}"


# --- tests ------------------------------------------------------------------------


@statement.register
def _(node: t.Test) -> str:
    return _join("test", text.quote(node.name), "todo" if node.todo else "")


@statement.register
def _(node: t.Given) -> str:
    return f"given {node.file}"


@statement.register
def _(node: t.Under) -> str:
    version = text.quote(node.version) if node.version is not None else ""
    return _join("under", node.loader, version, f"on {node.system}" if node.system else "")


@statement.register
def _(node: t.Expect) -> str:
    plain = NAME.fullmatch(node.module) and node.module not in _OUTCOMES
    lane = f"lane {node.lane}" if node.lane is not None else ""
    by = f"by {text.quote(node.by)}" if node.by is not None else ""
    return _join(
        "expect", node.module if plain else text.quote(node.module), node.algorithm, _shape(node.shape), lane, by
    )


@statement.register
def _(node: t.ExpectOutcome) -> str:
    return _join("expect", node.outcome, text.quote(node.text) if node.text is not None else "")
