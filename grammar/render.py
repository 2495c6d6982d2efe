"""Diagnostics as text: for people (with the source line and carets), for programs, for GitHub, as SARIF."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from .codes import CODES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from .diagnostics import Diagnostic
    from .tree import Span

FORMATS: Final = ("pretty", "json", "github", "sarif")
_WINDOW: Final = 150
_TAB: Final = "    "


def _plain(text: str, _style: str) -> str:
    return text


def pretty(found: Diagnostic, source: str | None, style: Callable[[str, str], str] = _plain) -> str:
    """Write one diagnostic like a compiler does.

    Parameters
    ----------
    source
        The file's text; without it the line is not shown.
    style
        Colours a text; given the text and ``error``, ``warning``, ``place``, ``caret`` or ``help``.
    """
    head = style(f"{found.severity}[{found.code}]", found.severity) + f": {_visible(found.message)}"
    spans = [found.span, *(s for s, _ in found.related)]
    gutter = max(len(str(s.line)) for s in spans)
    out = [head, *_snippet(found.file, found.span, source, gutter, "-->", "", style, found.severity)]
    for span, text in found.related:
        out += _snippet(found.file, span, source, gutter, ":::", text, style, "place")
    if found.help:
        out.append(f"{' ' * gutter} {style('=', 'place')} {style('help', 'help')}: {_visible(found.help)}")
    return "\n".join(out)


def _snippet(
    file: str,
    span: Span,
    source: str | None,
    gutter: int,
    arrow: str,
    label: str,
    style: Callable[[str, str], str],
    severity: str,
) -> list[str]:
    pad = " " * gutter
    out = [f"{pad}{style(arrow, 'place')} {file}:{span.line}:{span.column}"]
    lines = source.split("\n") if source is not None else []
    if not 1 <= span.line <= len(lines):
        return out + ([f"{pad} {style('=', 'place')} note: {label}"] if label else [])
    line = lines[span.line - 1].rstrip("\r")
    start = min(span.column - 1, len(line))
    end = min(span.end_column - 1, len(line)) if span.end_line == span.line else len(line.rstrip())
    shown, before, width = _cropped(line, start, max(start + 1, end))
    mark = ("^" if arrow == "-->" else "-") * max(1, width) + (f" {label}" if label else "")
    bar = style("|", "place")
    number = style(str(span.line).rjust(gutter), "place")
    return [
        *out,
        f"{pad} {bar}",
        f"{number} {bar} {shown}".rstrip(),
        f"{pad} {bar} {' ' * before}{style(mark, severity)}",
    ]


def _cropped(line: str, start: int, end: int) -> tuple[str, int, int]:
    """Return the line as shown, the columns before the carets, and the carets' width."""
    first = 0
    if len(line) > _WINDOW and end > _WINDOW - 20:
        first = max(0, min(start - _WINDOW // 3, len(line) - _WINDOW))
    lead = "..." if first else ""
    tail = "..." if len(line) > first + _WINDOW else ""
    end = min(end, first + _WINDOW)
    shown = lead + _visible(line[first : first + _WINDOW]) + tail
    return shown, len(lead) + _columns(_visible(line[first:start])), _columns(_visible(line[start:end]))


def _visible(text: str) -> str:
    return "".join(_TAB if c == "\t" else c if c.isprintable() else "\ufffd" for c in text)


def _columns(text: str) -> int:
    """Return how many terminal columns a text takes."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def as_dict(found: Diagnostic) -> dict[str, Any]:
    """Return the JSON form of one diagnostic."""
    return {
        "code": found.code,
        "severity": found.severity,
        "message": found.message,
        "file": found.file,
        **_region(found.span),
        "help": found.help,
        "related": [{"message": text, **_region(span)} for span, text in found.related],
    }


def _region(span: Span) -> dict[str, int]:
    return {"line": span.line, "column": span.column, "end_line": span.end_line, "end_column": span.end_column}


def github(found: Diagnostic) -> str:
    """Write a workflow command, which GitHub shows beside the line."""
    span = found.span
    properties = {
        "file": found.file,
        "line": span.line,
        "col": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
        "title": found.code,
    }
    text = found.message + (f"\nhelp: {found.help}" if found.help else "")
    return f"::{found.severity} {','.join(f'{k}={_property(str(v))}' for k, v in properties.items())}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def sarif(found: Iterable[Diagnostic], version: str) -> dict[str, Any]:
    """Return a SARIF 2.1.0 log of one run."""
    listed = list(found)
    ids = sorted({d.code for d in listed})
    driver = {"name": "bitlane", "version": version, "rules": [_rule(i) for i in ids]}
    results = [
        {
            "ruleId": d.code,
            "ruleIndex": ids.index(d.code),
            "level": d.severity,
            "message": {"text": d.message + (f" ({d.help})" if d.help else "")},
            "locations": [_location(d.file, d.span)],
            "relatedLocations": [{**_location(d.file, s), "message": {"text": text}} for s, text in d.related],
        }
        for d in listed
    ]
    schema = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": schema, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, Any]:
    known = CODES[code]
    return {
        "id": code,
        "shortDescription": {"text": known.title},
        "fullDescription": {"text": known.meaning},
        "help": {"text": known.why},
        "defaultConfiguration": {"level": known.severity},
    }


def _location(file: str, span: Span) -> dict[str, Any]:
    region = {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }
    return {"physicalLocation": {"artifactLocation": {"uri": quote(file.replace("\\", "/"))}, "region": region}}


def render(
    format: str,
    found: Sequence[Diagnostic],
    texts: Mapping[str, str],
    files: Sequence[str] = (),
    version: str = "",
    style: Callable[[str, str], str] = _plain,
) -> str:
    """Write diagnostics in one of :data:`FORMATS`; ``texts`` holds the files' contents by name."""
    if format == "json":
        count = sum(d.severity == "error" for d in found)
        document = {
            "schema": "bitlane.rules_check/1",
            "files": list(files),
            "errors": count,
            "warnings": len(found) - count,
            "diagnostics": [as_dict(d) for d in found],
        }
        return json.dumps(document, indent=1, ensure_ascii=False)
    if format == "sarif":
        return json.dumps(sarif(found, version), indent=1, ensure_ascii=False)
    if format == "github":
        return "\n".join(github(d) for d in found)
    return "\n\n".join(pretty(d, texts.get(d.file), style) for d in found)
