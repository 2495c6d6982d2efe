"""Parser failures in the author's words: one situation, one sentence, one way out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .diagnostics import Diagnostic, closest
from .expected import choices, expected, join, keywords, starts
from .foreign import CHARACTERS, WORDS
from .scan import STARTERS, Logical, Piece, pieces, statements
from .tree import Span

if TYPE_CHECKING:
    from collections.abc import Callable

    from lark.exceptions import UnexpectedInput

# Every situation that the parser tells apart; a test reaches each.
LABELS: Final[dict[str, str]] = {
    "unclosed-string": "a string without its closing quote",
    "unclosed-bracket": "a bracket that nothing closes",
    "unclosed-block": "a block that nothing closes",
    "stray-close": "a closing bracket that closes nothing",
    "no-language": "a file without `language 1`",
    "no-header": "a file that does not say what it describes",
    "foreign-character": "a character that the language does not use",
    "foreign-operator": "an operator of another language",
    "unquoted-version": "a version without quotes",
    "json-value": "a word in JSON that is no value",
    "json-comma": "a comma with nothing behind it in JSON",
    "misplaced-statement": "a statement in the wrong block",
    "unknown-statement": "a first word that starts no statement",
    "missing-comma": "two names without a comma between them",
    "joined-words": "two words without a blank between them",
    "ends-early": "a statement that ends too early",
    "misspelt-word": "a word that is almost a keyword",
    "unexpected": "anything else",
}

_OPERATORS: Final = {"==": "is", "=": "is", "!=": "is not", "&&": "and", "||": "or", "!": "not"}
# What may stand in a block, by the word that opens it.
BLOCK_RULES: Final = {
    "chain": "step",
    "format": "format_item",
    "stack": "stack_item",
    "part": "part_item",
    "names": "name_rule",
    "test": "test_item",
}
_BLOCKS: Final = {
    "statement": "at the top of a file",
    "step": "in `chain`",
    "format_item": "in `format`",
    "stack_item": "in `stack`",
    "part_item": "in `part`",
    "name_rule": "in `names`",
    "test_item": "in `test`",
}


@dataclass(frozen=True, slots=True)
class _Fault:
    """Where the parser stopped, and what it would have taken."""

    text: str
    line: int
    column: int
    accepted: frozenset[str]
    kind: str
    logicals: list[Logical]

    @property
    def word(self) -> str:
        source = self.text.split("\n")[self.line - 1 : self.line]
        return _word_at(source[0], self.column) if source else ""

    @property
    def statement(self) -> Logical | None:
        """The statement that the fault is in."""
        return next((s for s in self.logicals if s.first <= self.line <= s.last), None)

    @property
    def first(self) -> bool:
        """Whether the fault is at a statement's first word."""
        here = self.statement
        return here is not None and (here.first, here.pieces[0].column) == (self.line, self.column)

    @property
    def header(self) -> str:
        """The kind of file that its head names."""
        heads = [p.text for logical in self.logicals[1:2] for p in logical.pieces[:2]]
        return next((w for w in heads if w != "extend"), "")

    def before(self) -> Piece | None:
        """The token before the fault, in its statement."""
        here = self.statement
        passed = [p for p in here.pieces if (p.line, p.column) < (self.line, self.column)] if here is not None else []
        return passed[-1] if passed else None

    def rest(self) -> str:
        """The line from the fault on."""
        source = self.text.split("\n")[self.line - 1 : self.line]
        return source[0][self.column - 1 :] if source else ""

    def enclosing(self) -> list[Logical]:
        """Heads of the blocks that are open at the fault, outermost first."""
        opened: list[Logical] = []
        for logical in self.logicals:
            if logical.first >= self.line and self.kind != "$END":
                break
            if logical.opens:
                opened.append(logical)
            elif logical.closes and opened:
                opened.pop()
        return opened


def explain(error: UnexpectedInput, text: str, file: str) -> Diagnostic:
    """Turn a lark failure into one diagnostic with what may stand there and the nearest spelling."""
    lines = text.split("\n")
    line = error.line if error.line and error.line > 0 else len(lines)
    column = error.column if error.column and error.column > 0 else len(lines[-1]) + 1
    # The follow set proper; what lark lists otherwise leaves keywords out.
    state = getattr(error, "interactive_parser", None)
    accepted = state.accepts() if state is not None else getattr(error, "expected", None)
    kind = getattr(getattr(error, "token", None), "type", "")
    fault = _Fault(text, line, column, frozenset(accepted or ()), kind, statements(text)[0])
    for look in _LOOKS:
        found = look(fault)
        if found is not None:
            label, message, span, hint = found
            code = "BL101" if label.startswith("unclosed") or label == "stray-close" else "BL100"
            return Diagnostic(code, message, file, span, hint, label=label)
    label, message, hint = _general(fault)
    return Diagnostic("BL100", message, file, _span(fault), hint, label=label)


def joined(token: Any, text: str, file: str) -> Diagnostic:
    """Two words that the lexer took apart because nothing separates them."""
    line, column = token.line or 1, token.column or 1
    word = _word_at(text.split("\n")[line - 1], column)
    span = Span(line, column, line, column + len(word))
    close = closest(word, keywords())
    hint = f"did you mean `{close}`?" if close else f"write `{token} {word[len(token) :]}`"
    return Diagnostic("BL100", f"unexpected `{word}`", file, span, hint, label="joined-words")


# --- situations, most telling first ----------------------------------------------

_Found = tuple[str, str, Span, str]


def _at(piece: Piece) -> Span:
    return Span(piece.line, piece.column, piece.line, piece.end_column)


def _span(fault: _Fault) -> Span:
    return Span(fault.line, fault.column, fault.line, fault.column + max(1, len(fault.word)))


def _torn(fault: _Fault) -> _Found | None:
    here = fault.statement
    torn = next((p for p in here.pieces if p.kind == "torn"), None) if here is not None else None
    if torn is None:
        return None
    return "unclosed-string", "this string is never closed", _at(torn), 'close it with `"` on the same line'


def _bracket(fault: _Fault) -> _Found | None:
    # The parser reads on past a forgotten bracket and stops in the statement after it.
    before = [s for s in fault.logicals if s.last < fault.line or fault.kind == "$END"]
    unclosed = before[-1].unclosed if before else None
    if unclosed is None:
        return None
    closing = {"(": ")", "[": "]", "{": "}"}[unclosed.text]
    return "unclosed-bracket", f"`{unclosed.text}` is never closed", _at(unclosed), f"add `{closing}`"


def _block(fault: _Fault) -> _Found | None:
    opened = fault.enclosing()
    if not opened:
        return None
    # A statement that stands no deeper than the block's head, and belongs where the head stands, shows it before the
    # file's end does.
    around = BLOCK_RULES.get(opened[-2].word, "step") if len(opened) > 1 else "statement"
    outside = fault.first and fault.column <= opened[-1].pieces[0].column and fault.word in starts(around)
    if fault.kind != "$END" and not outside:
        return None
    head = opened[-1]
    name = " ".join(p.text for p in head.pieces[:2] if p.text != "{")
    return "unclosed-block", f"the block `{name}` is never closed", _at(head.pieces[-1]), "add `}` on a line of its own"


def _stray(fault: _Fault) -> _Found | None:
    if fault.word not in ("}", ")", "]"):
        return None
    here = fault.statement
    if fault.word == "}" and not (fault.first and not fault.enclosing()):
        return None
    opening = {"}": "{", ")": "(", "]": "["}[fault.word]
    if fault.word != "}" and here is not None and _balance(here, fault, opening) > 0:
        return None
    return (
        "stray-close",
        f"`{fault.word}` closes nothing",
        _span(fault),
        f"remove it, or add the `{opening}` it belongs to",
    )


def _balance(here: Logical, fault: _Fault, opening: str) -> int:
    before = [p for p in here.pieces if (p.line, p.column) < (fault.line, fault.column)]
    return sum((p.text == opening) - (p.text == fault.word) for p in before)


def _header(fault: _Fault) -> _Found | None:
    if "LANGUAGE" in fault.accepted:
        hint = "make that its first line"
        if fault.rest().startswith(("//", "--", ";", "/*")):
            hint = "comments start with `#`"
        elif fault.word.lower() == "language":
            hint = "write it in small letters"
        return "no-language", "a rule file starts with `language 1`", _span(fault), hint
    if {"LOADER", "FAMILY", "LANES"} <= fault.accepted:
        close = closest(fault.word, ("loader", "family", "lanes", "extend"))
        hint = (
            f"did you mean `{close}`?" if close else 'write `loader NAME "VERSION"`, `family NAME for CLASS`, `lanes`'
        )
        return "no-header", "after `language 1` a file says what it describes", _span(fault), hint
    return None


def _operator(fault: _Fault) -> _Found | None:
    rest = fault.rest()
    found = next((o for o in ("==", "!=", "&&", "||", "=", "!") if rest.startswith(o)), "")
    joins = found in ("&&", "||") and bool({"AND", "OR"} & fault.accepted)
    fits = "IS" in fault.accepted or joins or (found == "!" and "NOT" in fault.accepted)
    if not found or not fits:
        return None
    span = Span(fault.line, fault.column, fault.line, fault.column + len(found))
    return "foreign-operator", f"unexpected `{found}`", span, f"write `{_OPERATORS[found]}`"


def _version(fault: _Fault) -> _Found | None:
    here = fault.statement
    if here is None or fault.word[:1] not in "0123456789" or "STRING" not in fault.accepted:
        return None
    if not fault.word:
        if here.word != "loader":
            return None
        name = here.pieces[1].text if len(here.pieces) > 1 else "NAME"
        return "ends-early", "a loader names the versions it describes", _span(fault), f'write `loader {name} "1.0"`'
    before = [p.text for p in here.pieces if (p.line, p.column) < (fault.line, fault.column)]
    if not before or not (before[-1] in ("since", "until") or before[0] in ("under", "loader")):
        return None
    return "unquoted-version", "a version stands in quotes", _span(fault), f'write `"{fault.word}"`'


def _json(fault: _Fault) -> _Found | None:
    here = fault.statement
    if here is None or here.word != "given" or fault.first:
        return None
    before = [p.text for p in here.pieces if (p.line, p.column) < (fault.line, fault.column)]
    if fault.word in ("}", "]") and before and before[-1] == ",":
        return "json-comma", f"unexpected `{fault.word}` after a comma", _span(fault), "remove the comma"
    if fault.word[:1].isalpha() and not fault.accepted & {"PATH"}:
        value = {"True": "true", "False": "false", "None": "null"}.get(fault.word)
        hint = (
            f"write `{value}`" if value else "JSON knows strings, numbers, lists, objects, `true`, `false` and `null`"
        )
        return "json-value", f"`{fault.word}` is no JSON value", _span(fault), hint
    return None


def _misplaced(fault: _Fault) -> _Found | None:
    if not fault.first or fault.word not in STARTERS:
        return None
    homes = [place for rule, place in _BLOCKS.items() if fault.word in starts(rule)]
    if not homes:
        homes = ["in the first lines of a file"]
    opened = fault.enclosing()
    where = f"inside `{opened[-1].word}`" if opened else "at the top of a file"
    hint = "it belongs " + join(homes)
    return "misplaced-statement", f"`{fault.word}` cannot stand {where}", _span(fault), hint


def _unknown(fault: _Fault) -> _Found | None:
    if not fault.first or not fault.word[:1].isalpha():
        return None
    names, _ = choices(fault.accepted)
    close = closest(fault.word, names)
    close = close or closest(fault.word.lower(), names)
    hint = f"did you mean `{close}`?" if close else expected(fault.accepted, fault.header)
    return "unknown-statement", f"`{fault.word}` starts no statement here", _span(fault), hint


def _comma(fault: _Fault) -> _Found | None:
    if "COMMA" not in fault.accepted or not fault.word or not (fault.word[0].isalpha() or fault.word[0] == '"'):
        return None
    if fault.word not in ("and", "or") and closest(fault.word, choices(fault.accepted)[0]):
        return None
    return "missing-comma", f"unexpected `{fault.word}`", _span(fault), "separate the members of a list by commas"


def _character(fault: _Fault) -> _Found | None:
    char = fault.word[:1]
    if fault.kind or not char:
        return None
    hint = "comments start with `#`" if fault.rest().startswith("//") else CHARACTERS.get(char, "remove it")
    span = Span(fault.line, fault.column, fault.line, fault.column + 1)
    name = f"`{char}`" if char.isprintable() else f"U+{ord(char):04X}"
    return "foreign-character", f"unexpected character {name}", span, hint


def _flag(fault: _Fault) -> _Found | None:
    """A misspelt word that the parser took for the name of an option."""
    before = fault.before()
    if before is None or before.kind != "word" or fault.accepted != {"EQUAL"}:
        return None
    close = closest(before.text, keywords())
    if not close:
        return None
    return "misspelt-word", f"unexpected `{before.text}`", _at(before), f"did you mean `{close}`?"


def _inline(fault: _Fault) -> _Found | None:
    before = fault.before()
    if before is None or before.text not in ("{", "}") or "_NL" not in fault.accepted or not fault.word:
        return None
    what = (
        "a block's statements stand on lines of their own" if before.text == "{" else "`}` stands on a line of its own"
    )
    return "unexpected", f"unexpected `{fault.word}`", _span(fault), what


_LOOKS: Final[tuple[Callable[[_Fault], _Found | None], ...]] = (
    _torn,
    _header,
    _bracket,
    _block,
    _stray,
    _operator,
    _version,
    _json,
    _character,
    _flag,
    _inline,
    _misplaced,
    _unknown,
    _comma,
)


def _general(fault: _Fault) -> tuple[str, str, str]:
    names, _ = choices(fault.accepted)
    close = WORDS.get(fault.word.lower(), "") or (closest(fault.word, names) if fault.word else "")
    if close:
        return "misspelt-word", f"unexpected `{fault.word}`", f"did you mean `{close}`?"
    if not fault.word or fault.kind in ("_NL", "$END"):
        return "ends-early", "the statement ends too early", expected(fault.accepted)
    return "unexpected", f"unexpected `{fault.word}`", expected(fault.accepted)


def _word_at(source: str, column: int) -> str:
    rest = source[column - 1 :]
    if not rest.strip() or rest.startswith("#"):
        return ""
    if rest[0] == '"':
        return next(pieces(rest)).text
    size = 0
    while size < len(rest) and (rest[size].isalnum() or rest[size] in "_."):
        size += 1
    return rest[: max(1, size)]
