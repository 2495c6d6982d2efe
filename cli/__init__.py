"""The bitlane command: a lazy group, so that no command pays for another's imports."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from ..errors import INTERNAL, USAGE, BitlaneError

# Name -> (module, one-line help); the help is here so that `bitlane --help` imports no command.
COMMANDS: dict[str, tuple[str, str]] = {
    "resolve": ("resolve", "At which precision every module of a checkpoint runs, and by which rule."),
    "explain": ("explain", "Why one module runs as it does: every rule tried, and why the winner won."),
    "buckets": ("buckets", "Layers grouped into priced operations, one per precision."),
    "price": ("price", "What a forward pass costs, from measured kernel tables."),
    "whatif": ("whatif", "What another precision would save or cost, per operation and in total."),
    "task": ("task", "Questions about a checkpoint, saved in a file and asked again."),
    "diff": ("diff", "What differs between two checkpoints, loaders, versions or systems."),
    "verify": ("verify", "Where stored tensors contradict the declared precision."),
    "conform": ("conform", "Agreement with answers recorded from a real engine."),
    "rules": ("rules", "Check, format, test and compare rule files."),
    "lookup": ("lookup", "Ask one measured table, for one key or for a file of keys."),
    "perf-data": ("perf_data", "Check, compare and audit measured tables."),
    "collect": ("collect", "Measure kernels through the engine's own dispatcher."),
    "models": ("models", "The packaged checkpoints."),
}

_ARGUMENTS = "bitlane.arguments"


class LazyGroup(click.Group):
    """Imports a command's module when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Names of the commands whose module is shipped."""
        shipped = set(os.listdir(os.path.dirname(__file__)))  # noqa: PTH120, PTH208 - pathlib costs start-up time
        return [n for n, (module, _) in COMMANDS.items() if f"{module}.py" in shipped]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"{__name__}.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the command list from the table, importing nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(n, COMMANDS[n][1]) for n in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggest the nearest command for an unknown one."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in self.list_commands(ctx):
            from difflib import get_close_matches

            close = get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f" Did you mean `{close[0]}`?" if close else ""
            raise click.UsageError(f"no command `{name}`.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what was asked, for the errors of commands below."""
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run, turning every refusal into its message and exit code."""
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        if sys.stdout is None:  # closed by the caller: what is printed goes nowhere
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115, PTH123 - lives as long as we do
        try:
            return super().invoke(ctx)
        except BitlaneError as error:
            self._tell(error, ctx.meta[_ARGUMENTS])
            ctx.exit(error.exit_code)
        except (click.ClickException, click.exceptions.Exit, click.Abort, KeyboardInterrupt):
            raise
        except BrokenPipeError:
            # The reader has what it wanted; nothing was found and nothing failed.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except OSError as error:
            click.echo(f"error[BL901]: {printable(str(error))}\n  = help: check the place and the space left", err=True)
            ctx.exit(USAGE)
        except Exception as error:
            if os.environ.get("BITLANE_TRACEBACK"):
                raise
            click.echo(
                f"error[BL900]: internal error, {type(error).__name__}: {printable(str(error))[:300]}\n"
                "  = help: please report it; BITLANE_TRACEBACK=1 shows where it happened",
                err=True,
            )
            ctx.exit(INTERNAL)

    @staticmethod
    def _tell(error: BitlaneError, arguments: list[str]) -> None:
        """Say what is wrong: in words on standard error; where JSON was asked for, as an object on standard output."""
        click.echo(printable(str(error)), err=True)
        if "--json" in arguments:
            import json

            keys = ("code", "message", "place", "help", "exit_code")
            click.echo(json.dumps({"schema": "bitlane.error/1", **{k: getattr(error, k) for k in keys}}))


def printable(text: str) -> str:
    """Escape control characters other than line breaks: names come from strangers."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="bitlane", message="%(prog)s %(version)s")
def main() -> None:
    """At which precision every module of an LLM checkpoint really runs, why, and what it costs.

    CHECKPOINT is a packaged model id (`bitlane models`), a folder, or a config.json.
    Exit codes: 0 ok, 1 findings, 2 usage, 3 invalid rules, 4 conflict or unresolvable checkpoint, 5 missing data,
    70 internal.
    """


if __name__ == "__main__":
    sys.exit(main())
