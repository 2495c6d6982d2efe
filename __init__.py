"""At which precision every module of an LLM checkpoint really runs, why, and what it costs.

>>> import bitlane
>>> answer = bitlane.resolve("nvidia/Gemma-4-26B-A4B-NVFP4", loader="vllm@0.31.0", system="gb200")
>>> answer["language_model.model.layers.0.experts"].lane.lane
'nvfp4'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> module that holds it; loaded on first use, so that importing bitlane imports nothing heavy.
_PUBLIC = {
    "BitlaneError": "errors",
    "Bucket": "resolver.bucket",
    "Parallel": "resolver.buckets",
    "Resolution": "resolver.resolution",
    "buckets": "resolver.buckets",
    "conform": "resolver.conform",
    "explain": "resolver.explain",
    "open_checkpoint": "resolver.checkpoint",
    "price": "perfcore.forward",
    "read_folder": "resolver.tensors",
    "resolve": "resolver.api",
    "verify": "resolver.verify",
}

__all__ = [*sorted(_PUBLIC), "__version__"]

if TYPE_CHECKING:
    from .errors import BitlaneError as BitlaneError
    from .perfcore.forward import price as price
    from .resolver.api import resolve as resolve
    from .resolver.bucket import Bucket as Bucket
    from .resolver.buckets import Parallel as Parallel
    from .resolver.buckets import buckets as buckets
    from .resolver.checkpoint import open_checkpoint as open_checkpoint
    from .resolver.conform import conform as conform
    from .resolver.explain import explain as explain
    from .resolver.resolution import Resolution as Resolution
    from .resolver.tensors import read_folder as read_folder
    from .resolver.verify import verify as verify


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name in _PUBLIC:
        return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Names for completion, without loading them."""
    return sorted([*globals(), *_PUBLIC])
