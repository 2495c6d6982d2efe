"""``bitlane rules``: check, format, test and compare rule files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .lsp import lsp_command
from .rules_files import check_command, explain_command, fmt_command
from .rules_run import coverage_command, diff_command, list_command, test_command

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Ordered(click.Group):
    """Lists the commands in the order in which they are used."""

    def list_commands(self, ctx: click.Context) -> Sequence[str]:  # type: ignore[override]  # noqa: ARG002
        return list(self.commands)


@click.group("rules", cls=_Ordered)
def command() -> None:
    """Check, format, test and compare rule files.

    Loaders, model families and lanes are text files (docs/rule-language.md). Files given with --rules or in
    BITLANE_RULES are laid over the packaged ones.
    """


for _command in (
    check_command,
    fmt_command,
    test_command,
    coverage_command,
    diff_command,
    list_command,
    explain_command,
    lsp_command,
):
    command.add_command(_command)
