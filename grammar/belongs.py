"""Which statements may stand at the top of which kind of file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from . import tree as t

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHARED: Final = (t.Let, t.Test)
BELONGS: Final[Mapping[str, tuple[type, ...]]] = {
    "loader": (*_SHARED, t.Read, t.Refuse, t.Report, t.Builtin, t.Alias, t.Chain, t.Format),
    "family": (
        *_SHARED,
        t.ConfigScope,
        t.Require,
        t.Stack,
        t.Part,
        t.Module,
        t.Operation,
        t.Overlap,
        t.Names,
    ),
    "lanes": (*_SHARED, t.Lane, t.Refuse, t.Weights, t.SystemAlias),
}
