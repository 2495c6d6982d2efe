"""Parse tree to syntax tree."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from . import tree as t

if TYPE_CHECKING:
    from collections.abc import Callable

LANGUAGE: Final = 1
MAX_DIGITS: Final = 40


class BuildError(Exception):
    """The file parses but a statement cannot mean anything."""

    def __init__(self, message: str, span: t.Span, help: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        self.help = help


def span(node: Any) -> t.Span:
    """Return the place of a parse-tree node or token."""
    meta = getattr(node, "meta", node)
    if getattr(meta, "line", None) is None:
        return t.Span()
    return t.Span(meta.line, meta.column, meta.end_line or meta.line, meta.end_column or meta.column + 1)


def _is_tree(node: Any) -> bool:
    return hasattr(node, "children")


def _find(node: Any, data: str) -> Any:
    """Return the child sub-tree called ``data``, or None."""
    return next((c for c in node.children if _is_tree(c) and c.data == data), None)


def _tokens(node: Any, kind: str = "PATH") -> list[str]:
    return [str(c) for c in node.children if c is not None and not _is_tree(c) and c.type == kind]


def _text(token: Any) -> str:
    """Decode a string token."""
    try:
        value: str = json.loads(str(token))
        value.encode()
    except ValueError as error:
        shown = str(token) if len(token) <= 40 else str(token)[:40] + "..."
        help = 'escapes are those of JSON: \\" \\\\ \\n \\u00e9; control characters need one'
        raise BuildError(f"bad escape in {shown}", span(token), help) from error
    return value


def _number(token: Any) -> int | float:
    """Decode a number token."""
    digits = str(token)
    if len(digits) <= MAX_DIGITS:
        value: int | float = int(digits) if digits.lstrip("-").isdigit() else float(digits)
        if abs(value) < 1 << 63:
            return value
    raise BuildError("a number beyond 64 bits", span(token), "no size or version needs that")


def _strings(node: Any) -> list[str]:
    return [_text(c) for c in node.children if c is not None and not _is_tree(c) and c.type == "STRING"]


def _names(node: Any, data: str = "names_list") -> tuple[str, ...]:
    """Return the names of a ``names_list`` child (or of the one inside ``for``/``on``/``by``)."""
    found = _find(node, data)
    if found is None:
        return ()
    inner = _find(found, "names_list")
    return tuple(_tokens(inner if inner is not None else found))


def _versions(node: Any) -> dict[str, str | None]:
    limits = _find(node, "range")
    out: dict[str, str | None] = {"since": None, "until": None}
    if limits is not None:
        for child in limits.children:
            if child is not None:
                out[str(child.data)] = _strings(child)[0]
    return out


def _when(node: Any) -> t.Expr | None:
    condition = _find(node, "condition")
    return None if condition is None else expr(condition.children[0])


def _guard(node: Any) -> dict[str, Any]:
    return {"at": span(node), "when": _when(node), **_versions(node)}


# --- expressions ------------------------------------------------------------

_BINARY = {"or": "or", "and": "and", "equal": "is", "unequal": "is_not"}


def expr(node: Any) -> t.Expr:
    """Build an expression."""
    kind, kids, at = str(node.data), node.children, span(node)
    if kind == "ref":
        return t.Ref(path=str(kids[0]), at=at)
    if kind == "number":
        return t.Constant(value=_number(kids[0]), at=at)
    if kind == "real":
        return t.Constant(value=_number(kids[0]), at=at)
    if kind == "string":
        return t.Constant(value=_text(kids[0]), at=at)
    if kind in ("true", "false", "null"):
        return t.Constant(value={"true": True, "false": False, "null": None}[kind], at=at)
    if kind == "call":
        return t.Call(function=str(kids[0]), arguments=tuple(expr(k) for k in kids[1:]), at=at)
    if kind == "index":
        return t.Index(base=expr(kids[0]), index=expr(kids[1]), at=at)
    if kind == "negated":
        return t.Not(value=expr(kids[0]), at=at)
    if kind == "minus":
        return t.Minus(value=expr(kids[-1]), at=at)
    if kind == "conditional":
        return t.Conditional(then=expr(kids[0]), test=expr(kids[1]), otherwise=expr(kids[2]), at=at)
    if kind in ("member", "not_member"):
        return t.Member(
            value=expr(kids[0]), choices=tuple(expr(k) for k in kids[1:]), negated=kind == "not_member", at=at
        )
    if kind == "presence":
        return t.Presence(value=expr(kids[0]), test="exists" if kids[1] == "exists" else "absent", at=at)
    return _binary(kind, kids, at)


def _binary(kind: str, kids: list[Any], at: t.Span) -> t.Expr:
    if kind in ("compare", "arithmetic", "text_test"):
        return t.Binary(operator=str(kids[1]), left=expr(kids[0]), right=expr(kids[2]), at=at)
    name = {"either": "or", "both": "and"}.get(kind) or _BINARY[kind]
    return t.Binary(operator=name, left=expr(kids[0]), right=expr(kids[1]), at=at)


def _shape(node: Any) -> tuple[t.Expr, t.Expr] | None:
    found = _find(node, "shape")
    return None if found is None else (expr(found.children[0]), expr(found.children[1]))


# --- statements -------------------------------------------------------------


def _outcome(node: Any) -> t.Outcome:
    found = _find(node, "outcome")
    words = _tokens(found)
    texts = _strings(found)
    if texts:
        return t.Outcome(refusal=texts[0], at=span(found))
    return t.Outcome(algorithm=words[0], activations=words[1] if len(words) > 1 else None, at=span(found))


def _optional_outcome(node: Any) -> t.Outcome | None:
    return _outcome(node) if _find(node, "outcome") is not None else None


def _match(node: Any) -> t.Match:
    found = _find(node, "match")
    named = _find(found, "named")
    on = _names(found, "on")
    containing = _find(found, "containing")
    ending = _find(found, "ending")
    quantifier = _find(found, "quantifier")
    return t.Match(
        at=span(found),
        by=_names(found, "by"),
        named=tuple(_strings(named)) if named is not None else (),
        on=on or ("path",),
        containing=_strings(containing)[0] if containing is not None else None,
        ending=tuple(_strings(ending)) if ending is not None else (),
        quantifier=_tokens(quantifier, "QUANTIFIER")[0] if quantifier is not None else None,
    )


def _also(node: Any) -> t.Also:
    old, new = _strings(node)
    return t.Also(at=span(node), old=old, new=new, raw=_tokens(node, "ALSO")[0] == "also_raw")


def _source(kind: str) -> Callable[[Any], t.Source]:
    def build_source(node: Any) -> t.Source:
        keys = _tokens(node)
        return t.Source(
            **_guard(node),
            kind=kind,  # type: ignore[arg-type]
            paths=tuple(_tokens(_find(node, "source_path"))),
            key=keys[0] if keys else None,
            flags=tuple(_tokens(node, "SOURCE_FLAG")),
            also=tuple(_also(c) for c in node.children if _is_tree(c) and c.data == "also"),
        )

    return build_source


def _code(node: Any) -> str | None:
    found = _find(node, "code")
    return None if found is None else _tokens(found)[0]


def _algorithm(node: Any) -> t.Algorithm:
    return t.Algorithm(
        **_guard(node), words=tuple(_strings(_find(node, "words"))), outcome=_outcome(node), kinds=_names(node, "kinds")
    )


def _options(node: Any) -> tuple[t.Option, ...]:
    return tuple(
        t.Option(name=_tokens(c)[0], value=expr(c.children[-1]), at=span(c))
        for c in node.children
        if _is_tree(c) and c.data == "option"
    )


def _module(node: Any) -> t.Module:
    flags: list[str] = []
    op = cls = None
    for child in node.children:
        if not _is_tree(child):
            continue
        if child.data == "module_flag":
            flags += _tokens(child, "MODULE_FLAG")
        elif child.data == "module_op":
            op = _tokens(child)[0]
        elif child.data == "module_class":
            cls = _tokens(child)[0]
    return t.Module(
        **_guard(node),
        kind=_tokens(node, "KIND")[0],
        path=_tokens(node)[0],
        shape=_shape(node),
        flags=tuple(flags),
        op=op,
        cls=cls,
        options=_options(node),
    )


def _overlap(node: Any) -> t.Overlap:
    phase = _tokens(node, "PHASE")
    left, right = (tuple(_tokens(c)) for c in node.children if _is_tree(c) and c.data == "side")
    return t.Overlap(**_guard(node), name=_tokens(node)[0], phase=phase[0] if phase else None, left=left, right=right)  # type: ignore[arg-type]


def _json(node: Any) -> Any:
    kind = str(node.data)
    if kind == "object":
        out: dict[str, Any] = {}
        for pair in node.children:
            if _is_tree(pair) and pair.data == "pair":
                key = _text(pair.children[0])
                if key in out:
                    raise BuildError(f"duplicate key `{key}`", span(pair), "keep one of them")
                out[key] = _json(pair.children[1])
        return out
    if kind == "array":
        return [_json(c) for c in node.children if c is not None]
    if kind == "json_string":
        return _text(node.children[0])
    if kind == "json_number":
        return _number(node.children[0])
    return {"json_true": True, "json_false": False, "json_null": None}[kind]


def _given(node: Any) -> t.Given:
    return t.Given(at=span(node), file=_tokens(node)[0], text=json.dumps(_json(node.children[-1])))


def _under(node: Any) -> t.Under:
    version, on = _strings(node), _names(node, "on")
    return t.Under(
        at=span(node), loader=_tokens(node)[0], version=version[0] if version else None, system=on[0] if on else None
    )


def _expect(node: Any) -> t.Expect:
    kids = list(node.children)
    module = _text(kids[0]) if kids[0].type == "STRING" else str(kids[0])
    return t.Expect(
        at=span(node),
        module=module,
        algorithm=str(kids[1]),
        shape=_shape(node),
        lane=str(kids[3]) if kids[3] is not None else None,
        by=_text(kids[4]) if kids[4] is not None else None,
    )


def _expect_outcome(node: Any) -> t.ExpectOutcome:
    texts = _strings(node)
    return t.ExpectOutcome(at=span(node), outcome=_tokens(node, "OUTCOME")[0], text=texts[0] if texts else None)


def _block(node: Any) -> tuple[Any, ...]:
    return tuple(item(c) for c in node.children if _is_tree(c) and str(c.data) in _BUILDERS)


_BUILDERS: dict[str, Callable[[Any], Any]] = {
    "let": lambda n: t.Let(at=span(n), **_versions(n), name=_tokens(n)[0], value=expr(n.children[1])),
    "read": lambda n: t.Read(**_guard(n), file=_tokens(n)[0], path=([*_tokens(n), ""])[1] or None),
    "refuse": lambda n: t.Refuse(**_guard(n), message=_strings(n)[0], code=_code(n), kinds=_names(n, "kinds")),
    "report": lambda n: t.Report(**_guard(n), message=_strings(n)[0], code=_code(n)),
    "builtin": lambda n: t.Builtin(at=span(n), **_versions(n), name=_tokens(n)[0], shards=tuple(_tokens(n)[1:])),
    "alias": lambda n: t.Alias(at=span(n), **_versions(n), path=_strings(n)[0], other=_strings(n)[1]),
    "chain": lambda n: t.Chain(at=span(n), name=_tokens(n)[0], steps=_block(n)),
    "format": lambda n: t.Format(**_guard(n), name=_tokens(n)[0], items=_block(n)),
    "exclusions": _source("exclusions"),
    "listing": _source("listing"),
    "groups": _source("groups"),
    "kv_cache": lambda n: t.KvCache(**_guard(n), value=expr(n.children[0])),
    "algorithms": lambda n: t.Algorithms(at=span(n), rows=_block(n)),
    "algorithm": _algorithm,
    "schemes": lambda n: t.Schemes(at=span(n), rows=_block(n)),
    "scheme": lambda n: t.Scheme(**_guard(n), outcome=_outcome(n), kinds=_names(n, "kinds")),
    "leave": lambda n: t.Leave(**_guard(n), kinds=_names(n)),
    "exclude": lambda n: t.Exclude(
        **_guard(n),
        match=_match(n),
        outcome=_optional_outcome(n),
        kinds=_names(n, "kinds"),
        unlisted=bool(_tokens(n, "UNLISTED")),
    ),
    "take": lambda n: t.Take(**_guard(n), source=_tokens(n, "SOURCE")[0], match=_match(n), kinds=_names(n, "kinds")),  # type: ignore[arg-type]
    "default": lambda n: t.Default(
        **_guard(n),
        outcome=_outcome(n),
        kinds=_names(n, "kinds"),
        evidence=tuple(_tokens(_find(_find(n, "at"), "source_path"))) if _find(n, "at") else (),
    ),
    "default_group": lambda n: t.Default(
        **_guard(n), outcome=t.Outcome(at=span(n)), group=_tokens(n)[0], kinds=_names(n, "kinds")
    ),
    "use": lambda n: t.Use(at=span(n), chain=_tokens(n)[0]),
    "each": lambda n: t.Each(
        **_guard(n),
        on=_names(n),
        chain=_tokens(n)[0],
        comparing=tuple(expr(c) for c in _find(n, "comparing").children) if _find(n, "comparing") else (),
        kinds=_names(n, "kinds"),
    ),
    "config_scope": lambda n: t.ConfigScope(at=span(n), paths=tuple(_tokens(_find(n, "source_path")))),
    "require": lambda n: t.Require(at=span(n), test=expr(n.children[0]), message=_strings(n)[0]),
    "stack": lambda n: t.Stack(
        **_guard(n),
        name=_tokens(n)[0],
        count=expr(n.children[1]),
        prefix=_strings(n)[0],
        flags=tuple(_tokens(n, "STACK_FLAG")),
        items=_block(n),
    ),
    "part": lambda n: t.Part(**_guard(n), name=_tokens(n)[0], items=_block(n)),
    "module": _module,
    "operation": lambda n: t.Operation(**_guard(n), name=_tokens(n)[0], kind=_tokens(n)[1], options=_options(n)),
    "overlap": _overlap,
    "names": lambda n: t.Names(at=span(n), **_versions(n), loader=_tokens(n)[0], rules=_block(n)),
    "rename": lambda n: t.Rename(**_guard(n), kind=_tokens(n, "RENAME")[0], old=_strings(n)[0], new=_strings(n)[1]),
    "fuse": lambda n: t.Fuse(
        **_guard(n), name=_tokens(n)[0], shards=tuple(_tokens(n)[1:]), unmapped=bool(_tokens(n, "UNMAPPED"))
    ),
    "never": lambda n: t.Never(**_guard(n), paths=_names(n)),
    "asked": lambda n: t.Asked(at=span(n), **_versions(n), path=_tokens(n)[0], name=_strings(n)[0]),
    "lacks": lambda n: t.Lacks(at=span(n), **_versions(n), architectures=_names(n)),
    "lane": lambda n: t.Lane(
        **_guard(n),
        name=_tokens(n)[0],
        algorithms=_names(n),
        kinds=_names(n, "kinds"),
        approximates=bool(_tokens(n, "APPROXIMATES")),
    ),
    "weights": lambda n: t.Weights(
        at=span(n), **_versions(n), name=_tokens(n)[0], bytes_per_weight=expr(n.children[1])
    ),
    "system": lambda n: t.SystemAlias(at=span(n), alias=_tokens(n)[0], name=_tokens(n)[1]),
    "test": lambda n: t.Test(at=span(n), name=_strings(n)[0], todo=bool(_tokens(n, "TODO")), items=_block(n)),
    "given": _given,
    "under": _under,
    "expect": _expect,
    "expect_outcome": _expect_outcome,
}


def item(node: Any) -> Any:
    """Build one statement."""
    return _BUILDERS[str(node.data)](node)


def _head(node: Any) -> t.Head:
    names, at = _tokens(node), span(node)
    match str(node.data):
        case "loader":
            return t.LoaderHead(at=at, name=names[0], versions=tuple(_strings(node)))
        case "family":
            return t.FamilyHead(at=at, name=names[0], architectures=_names(node))
        case "lanes":
            return t.LanesHead(at=at)
        case _:
            kind = _tokens(node, "EXTENDED")[0]
            return t.ExtensionHead(at=at, kind=kind, name=names[0] if names else None)  # type: ignore[arg-type]


def build(root: Any) -> t.File:
    """Build a file from lark's parse tree.

    Raises
    ------
    BuildError
        For a language version other than 1, a bad escape, or a duplicate JSON key.
    """
    parts = [c for c in root.children if _is_tree(c)]
    version = parts[0]
    number = _number(version.children[0])
    if number != LANGUAGE:
        raise BuildError(f"language {number} is not known", span(version), f"this bitlane reads `language {LANGUAGE}`")
    return t.File(at=span(root), language=LANGUAGE, head=_head(parts[1]), items=tuple(item(c) for c in parts[2:]))
