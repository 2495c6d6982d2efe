"""An engine that measures nothing: its latency is a digest of the case, so that two runs can be compared."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path

from bitlane.collector.engine import Measurement, Origin
from bitlane.collector.sidecar import Runtime


def latency(case):
    return int.from_bytes(hashlib.sha256(case.id.encode()).digest()[:6], "big") / 2**40 + 1e-3


class Fake:
    """Options: ``fail`` and ``die`` are substrings of case ids; ``once`` is a file that marks the first death."""

    name = "fake"

    def __init__(self, options):
        self.options = dict(options)
        if self.options.get("refuse"):
            from bitlane.errors import UsageError

            raise UsageError("BL726", "told to refuse", help="do not tell it")

    def origin(self):
        return Origin("cpu_test", "fake", "1.0", "nothing", Runtime("fake", "1.0"), provenance="synthetic")

    def lanes(self):
        return frozenset({("gemm", "bf16"), ("gemm", "fp32"), ("moe", "bf16")})

    def measure(self, case, seed):
        marker = Path(self.options.get("once", "/nonexistent"))
        if self.options.get("die") and self.options["die"] in case.id and not marker.exists():
            if marker.parent.exists() and "once" in self.options:
                marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.options.get("hang") and self.options["hang"] in case.id:
            time.sleep(3600)
        if self.options.get("fail") and self.options["fail"] in case.id:
            raise RuntimeError(f"no kernel for {case.id}\nand a second line")
        if self.options.get("interrupt") and self.options["interrupt"] in case.id:
            os.kill(os.getpid(), signal.SIGINT)
        return Measurement(latency(case), "fake kernel")
