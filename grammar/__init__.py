"""The rule language: grammar, parser, syntax tree, diagnostics."""

from .diagnostics import Diagnostic, RuleSyntaxError
from .parsing import parse

__all__ = ["Diagnostic", "RuleSyntaxError", "parse"]
