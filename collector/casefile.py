"""The YAML files in ``collector/cases``: grids, lanes and names, read once and checked for shape."""

from __future__ import annotations

import functools
from typing import Any, Final, TypeVar

import msgspec
import yaml

from ..errors import BitlaneError
from ..paths import ROOT

FOLDER: Final = ROOT / "collector" / "cases"
T = TypeVar("T")


@functools.cache
def _plain(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_bytes())


def load(name: str, kind: type[T]) -> T:
    """A case file as a typed value.

    Parameters
    ----------
    name
        File name in ``collector/cases``.
    kind
        What it must be.

    Raises
    ------
    BitlaneError
        ``BL721`` if the file does not have that shape.
    """
    try:
        return msgspec.convert(_plain(name), kind)
    except (msgspec.ValidationError, yaml.YAMLError, OSError) as error:
        raise BitlaneError(
            "BL721", f"the case file cannot be used: {error}", place=str(FOLDER / name), help="restore it"
        ) from error
