"""The bitlane command."""

import click


@click.group()
def main() -> None:
    """At which precision every module of a checkpoint really runs, why, and what it costs."""
