"""Provenance files: what is written comes back, whatever the names in it look like."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bitlane.collector import sidecar
from bitlane.errors import BitlaneError

# Words that YAML would take for something else, beside ordinary text.
WORDS = st.sampled_from(["no", "on", "1e3", "0x1f", "0.31.0", "2026-01-02T03:04:05Z", "null", "~", "1_000", "08", ""])
TEXT = WORDS | st.text(st.characters(blacklist_categories=("Cs",)), max_size=12)
RUNTIME = st.builds(
    sidecar.Runtime,
    framework=TEXT,
    version=TEXT,
    image=st.none() | TEXT.filter(bool),
    image_digest=st.none(),
    source_commit=st.none() | TEXT.filter(bool),
    libraries=st.dictionaries(TEXT, TEXT, max_size=3),
)
EVENT = st.builds(
    sidecar.Event,
    id=TEXT,
    source_id=st.integers(0, 10**6),
    system=TEXT,
    backend=TEXT,
    backend_version=TEXT,
    device=TEXT,
    runtime=RUNTIME,
    collector_ref=TEXT,
    collector_hash=TEXT,
    case_plan_hash=TEXT,
    collected_at=TEXT,
    rows=st.integers(0, 10**9),
    status=st.sampled_from(["complete", "partial"]),
    provenance=st.sampled_from(["collected", "local", "synthetic"]),
    parts=st.lists(TEXT, max_size=3).map(tuple),
    kernels=st.dictionaries(TEXT, st.integers(0, 99), max_size=3),
    note=TEXT,
)


def required(event):
    """Required texts may not be empty: an empty field is not written."""
    return all(
        (event.id, event.system, event.backend, event.backend_version, event.device, event.collector_ref)
    ) and all((event.collector_hash, event.case_plan_hash, event.collected_at, event.runtime.framework))


@given(st.lists(EVENT.filter(required).filter(lambda event: event.runtime.version), max_size=3))
def test_a_sidecar_comes_back(events):
    meta = sidecar.Sidecar(2, "gemm", 7, "0" * 64, sidecar.Base("sources.json", "1" * 64, 5), tuple(events))
    data = sidecar.dump(meta)
    assert sidecar.parse(data, "here") == meta
    assert sidecar.dump(sidecar.parse(data, "here")) == data


@pytest.mark.parametrize(
    "text", ["a: &x [1]\nb: *x\n", "a: !!python/object:os.system x\n", "{" * 2000, "a: [\n", "\x00", "- \t: x"]
)
def test_hostile_files_are_refused(text):
    with pytest.raises(BitlaneError) as caught:
        sidecar.parse(text.encode(), "here")
    assert caught.value.code in {"BL705", "BL706"}
