"""The pricing core: measured tables, declared donors, error bands.

Importing this package loads neither numba nor pyarrow nor numpy; names are resolved on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch import Lookups, ManyPrices, Pricer, price_many
    from .explain import MissingRowsError
    from .plan import Plan, compile_plan
    from .pricing import OpPrice, PassPrice, price
    from .resolved import MODES, SOURCES
    from .store import Store
    from .workload import Workload

_HOMES = {
    "MODES": "resolved",
    "SOURCES": "resolved",
    "Lookups": "batch",
    "ManyPrices": "batch",
    "MissingRowsError": "explain",
    "OpPrice": "pricing",
    "PassPrice": "pricing",
    "Plan": "plan",
    "Pricer": "batch",
    "Store": "store",
    "Workload": "workload",
    "compile_plan": "plan",
    "price": "pricing",
    "price_many": "batch",
}

__all__ = [
    "MODES",
    "SOURCES",
    "Lookups",
    "ManyPrices",
    "MissingRowsError",
    "OpPrice",
    "PassPrice",
    "Plan",
    "Pricer",
    "Store",
    "Workload",
    "compile_plan",
    "price",
    "price_many",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
