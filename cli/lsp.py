"""The language server for rule files: ``bitlane rules lsp`` (extra ``lsp``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import click

from ..errors import UsageError
from .rules_files import rules_option

_SEVERITY = {"error": 1, "warning": 2}


def path_of(uri: str) -> Path:
    """Return the path of a ``file:`` address; other addresses become names."""
    parts = urlparse(uri)
    return (
        Path(unquote(parts.path))
        if parts.scheme == "file"
        else Path(Path(unquote(parts.path)).name or "untitled.rules")
    )


def units(line: str, column: int) -> int:
    """Turn a 0-based count of characters into UTF-16 units, which the protocol counts in."""
    return len(line[:column].encode("utf-16-le")) // 2


def characters(line: str, unit: int) -> int:
    """Turn UTF-16 units into a 0-based count of characters."""
    return len(line.encode("utf-16-le")[: 2 * unit].decode("utf-16-le", "ignore"))


def server(rules: tuple[Path, ...] = ()) -> Any:
    """Build the server.

    Raises
    ------
    UsageError
        BL229: pygls is not installed.
    """
    try:
        from lsprotocol import types
        from pygls.lsp.server import LanguageServer
    except ImportError as error:
        hint = "pip install 'bitlane[lsp]'"
        raise UsageError("BL229", "the language server needs pygls", place="bitlane rules lsp", help=hint) from error
    from .. import __version__
    from ..rules.library import find_usable
    from . import lsp_features
    from .lsp_completion import completions

    out = LanguageServer("bitlane-rules", __version__)
    counts = lsp_features.Counts(find_usable(rules))

    def text_of(uri: str) -> str:
        return str(out.workspace.get_text_document(uri).source)

    def published(uri: str) -> None:
        text = text_of(uri)
        lines = text.split("\n")
        listed = [_diagnostic(types, d, lines) for d in lsp_features.findings(text, path_of(uri), rules)]
        out.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, listed))

    def opened(params: Any) -> None:
        counts.start()
        published(params.text_document.uri)

    def changed(params: Any) -> None:
        published(params.text_document.uri)

    def hovered(params: Any) -> Any:
        text, line, column = _place(text_of(params.text_document.uri), params.position)
        told = lsp_features.hover(text, path_of(params.text_document.uri), line, column, counts)
        return types.Hover(types.MarkupContent(types.MarkupKind.Markdown, told)) if told else None

    def completed(params: Any) -> Any:
        found = completions(*_place(text_of(params.text_document.uri), params.position), counts.library)
        items = [types.CompletionItem(w, kind=types.CompletionItemKind.Keyword) for w in found]
        return types.CompletionList(is_incomplete=False, items=items)

    def formatted(params: Any) -> Any:
        text = text_of(params.text_document.uri)
        after = lsp_features.formatted(text, path_of(params.text_document.uri))
        if after is None or after == text:
            return []
        end = types.Position(text.count("\n") + 1, 0)
        return [types.TextEdit(types.Range(types.Position(0, 0), end), after)]

    for feature, handler in (
        (types.TEXT_DOCUMENT_DID_OPEN, opened),
        (types.TEXT_DOCUMENT_DID_CHANGE, changed),
        (types.TEXT_DOCUMENT_HOVER, hovered),
        (types.TEXT_DOCUMENT_COMPLETION, completed),
        (types.TEXT_DOCUMENT_FORMATTING, formatted),
    ):
        out.feature(feature)(handler)
    return out


def _place(text: str, position: Any) -> tuple[str, int, int]:
    lines = text.split("\n")
    line = lines[position.line] if position.line < len(lines) else ""
    return text, position.line, characters(line, position.character)


def _diagnostic(types: Any, found: Any, lines: list[str]) -> Any:
    span = found.span
    line = lines[span.line - 1] if span.line <= len(lines) else ""
    last = lines[span.end_line - 1] if span.end_line <= len(lines) else ""
    start = types.Position(span.line - 1, units(line, span.column - 1))
    end = types.Position(span.end_line - 1, units(last, span.end_column - 1))
    text = found.message + (f"\nhelp: {found.help}" if found.help else "")
    return types.Diagnostic(
        types.Range(start, end),
        text,
        severity=types.DiagnosticSeverity(_SEVERITY[found.severity]),
        code=found.code,
        source="bitlane",
    )


@click.command("lsp", short_help="A language server for editors (extra `lsp`).")
@rules_option
def lsp_command(rules: tuple[Path, ...]) -> None:
    """Serve an editor over standard input and output: findings, hover, completion, formatting."""
    server(rules).start_io()
