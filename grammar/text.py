"""Syntax tree to text: one canonical line for every expression, step and statement head."""

from __future__ import annotations

import json
from decimal import Decimal

from . import tree as t

_LEVEL = {"or": 1, "and": 2, "not": 3, "compare": 4, "+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6, "minus": 7}
_COMPARISONS = {"is", "is_not", "<", "<=", ">", ">=", "contains", "starts_with", "ends_with"}


def quote(value: str) -> str:
    """Write a string token."""
    return json.dumps(value, ensure_ascii=False)


def literal(value: int | float | str | bool | None) -> str:
    """Write a literal."""
    if isinstance(value, str):
        return quote(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # The language has no exponents.
        plain = format(Decimal(repr(value)), "f")
        return plain if "." in plain else plain + ".0"
    return str(value)


def expression(node: t.Expr, level: int = 0) -> str:
    """Write an expression with the parentheses that its tree needs and a few that its reader needs."""
    text, mine = _expression(node)
    return f"({text})" if mine < level else text


def _branch(node: t.Expr) -> str:
    """Write a value of a conditional; tests among them stand in parentheses."""
    return expression(node, 0 if isinstance(node, t.Conditional) else 5)


def _side(node: t.Expr, operator: str, level: int) -> str:
    """Write an operand; `and` inside `or` stands in parentheses."""
    mixed = operator == "or" and isinstance(node, t.Binary) and node.operator == "and"
    return expression(node, _LEVEL["not"] if mixed else level)


def _expression(node: t.Expr) -> tuple[str, int]:
    match node:
        case t.Constant():
            return literal(node.value), 9
        case t.Ref():
            return node.path, 9
        case t.Call():
            return f"{node.function}({', '.join(expression(a) for a in node.arguments)})", 9
        case t.Index():
            return f"{expression(node.base, 9)}[{expression(node.index)}]", 9
        case t.Minus():
            return f"-{expression(node.value, 7)}", 7
        case t.Not():
            return f"not {expression(node.value, 3)}", 3
        case t.Conditional():
            return f"{expression(node.then, 5)} if {expression(node.test, 1)} else {_branch(node.otherwise)}", 0
        case t.Member():
            word = "not in" if node.negated else "in"
            return f"{expression(node.value, 5)} {word} ({', '.join(expression(c) for c in node.choices)})", 4
        case t.Presence():
            return f"{expression(node.value, 5)} {node.test}", 4
        case t.Binary():
            if node.operator in _COMPARISONS:
                word = node.operator.replace("_not", " not") if node.operator == "is_not" else node.operator
                return f"{expression(node.left, 5)} {word} {expression(node.right, 5)}", 4
            mine = _LEVEL[node.operator]
            left, right = _side(node.left, node.operator, mine), _side(node.right, node.operator, mine + 1)
            return f"{left} {node.operator} {right}", mine


def guard(node: t.Statement, kinds: tuple[str, ...] = (), before_range: str = "") -> str:
    """Write `for`, `when`, `since` and `until`, with a leading blank where anything is written."""
    parts = []
    if kinds:
        parts.append("for " + ", ".join(kinds))
    when = getattr(node, "when", None)
    if when is not None:
        parts.append("when " + expression(when))
    if before_range:
        parts.append(before_range)
    if node.since is not None:
        parts.append("since " + quote(node.since))
    if node.until is not None:
        parts.append("until " + quote(node.until))
    return "".join(" " + p for p in parts)


def outcome(node: t.Outcome) -> str:
    """Write an algorithm word or a refusal."""
    if node.refusal is not None:
        return "refuse " + quote(node.refusal)
    return " ".join(w for w in (node.algorithm, node.activations) if w)


def match(node: t.Match) -> str:
    """Write how entries meet a module."""
    parts = ["by " + ", ".join(node.by)] if node.by else ["named " + ", ".join(quote(n) for n in node.named)]
    if node.on != ("path",):
        parts.append("on " + ", ".join(node.on))
    if node.containing is not None:
        parts.append("containing " + quote(node.containing))
    if node.ending:
        parts.append("ending " + ", ".join(quote(e) for e in node.ending))
    if node.quantifier is not None:
        parts.append(node.quantifier)
    return " ".join(parts)


def step(node: t.Step, bare: bool = False) -> str:
    """Write one step of a chain; ``bare`` leaves `for`, `when` and the version range out: the rule's name."""
    kinds: tuple[str, ...] = ()
    match node:
        case t.Leave():
            text = "leave " + ", ".join(node.kinds)
        case t.Exclude():
            suffix = f" as {outcome(node.outcome)}" if node.outcome is not None else ""
            unlisted = "unlisted " if node.unlisted else ""
            text, kinds = f"exclude {unlisted}{match_(node.match)}{suffix}", node.kinds
        case t.Take():
            text, kinds = f"take {node.source} {match_(node.match)}", node.kinds
        case t.Default():
            at = f" at {' | '.join(node.evidence)}" if node.evidence and not bare else ""
            what = f"group {node.group}" if node.group is not None else outcome(node.outcome)
            text, kinds = f"default {what}{at}", node.kinds
        case t.Each():
            same = (
                " comparing " + ", ".join(expression(e) for e in node.comparing) if node.comparing and not bare else ""
            )
            text, kinds = f"each {', '.join(node.on)} use {node.chain}{same}", node.kinds
        case t.Use():
            return f"use {node.chain}"
        case t.Refuse():
            code = f" code {node.code}" if node.code else ""
            text, kinds = f"refuse {quote(node.message)}{code}", node.kinds
    return text if bare else text + guard(node, kinds)


match_ = match
