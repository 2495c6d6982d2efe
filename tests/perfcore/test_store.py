"""The compiled tables: private, rebuilt when damaged, and possible where nothing can be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pricing_cases import grid, one, write_gemm

from bitlane.errors import MissingDataError, UsageError
from bitlane.perfcore import Store, cache


@pytest.fixture
def fresh_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(cache.ENVIRONMENT, str(folder))
    cache.root.cache_clear()
    yield folder / "tables"
    cache.root.cache_clear()


def the_pack(folder: Path) -> Path:
    (found,) = folder.glob("gemm-*.pack")
    return found


def test_the_cache_is_private_and_reused(fresh_cache: Path, tmp_path: Path) -> None:
    write_gemm(tmp_path / "t", grid())
    want = one(Store([tmp_path / "t"]), "bfloat16", 8, 256, 256)
    assert fresh_cache.stat().st_mode & 0o777 == 0o700
    assert the_pack(fresh_cache).stat().st_mode & 0o077 == 0
    stamp = the_pack(fresh_cache).stat().st_mtime_ns
    assert one(Store([tmp_path / "t"]), "bfloat16", 8, 256, 256) == want
    assert the_pack(fresh_cache).stat().st_mtime_ns == stamp


@pytest.mark.parametrize("harm", ["truncate", "garbage", "header", "index", "values"])
def test_a_damaged_table_is_compiled_again(
    fresh_cache: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, harm: str
) -> None:
    write_gemm(tmp_path / "t", grid())
    want = one(Store([tmp_path / "t"]), "bfloat16", 8, 256, 256)
    path = the_pack(fresh_cache)
    data = bytearray(path.read_bytes())
    values = data.find(Store([tmp_path / "t"]).table("gemm").arrays["values"].tobytes())
    if harm == "truncate":
        del data[-100:]
    elif harm == "garbage":
        data[:] = b"not a table"
    elif harm == "header":
        data[40] ^= 1
    elif harm == "index":
        data[data.find(Store([tmp_path / "t"]).table("gemm").arrays["slabs"].tobytes())] ^= 1
    else:
        for i in range(values, values + 8 * 45):
            data[i] ^= 1
    path.write_bytes(bytes(data))
    assert one(Store([tmp_path / "t"]), "bfloat16", 8, 256, 256) == want
    assert "again" in caplog.text


def test_new_content_is_a_new_table(fresh_cache: Path, tmp_path: Path) -> None:
    write_gemm(tmp_path / "t", grid())
    one(Store([tmp_path / "t"]), "bfloat16", 8, 256, 256)
    write_gemm(tmp_path / "t", [(lane, m, n, k, 2 * ms) for lane, m, n, k, ms in grid()])
    assert one(Store([tmp_path / "t"]), "bfloat16", 8, 256, 256)[0] == 2 * (1.0 + 0.256 + 0.512 + 0.024)
    assert len([*fresh_cache.glob("gemm-*.pack")]) == 2


def test_an_open_cache_folder_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    assert cache.private(folder).stat().st_mode & 0o777 == 0o700


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="plain folder"):
        cache.private(tmp_path / "link")


def test_without_a_writable_home_a_private_folder_serves(tmp_path: Path) -> None:
    """Neither cache nor home can be written: prices still come, with a notice."""
    write_gemm(tmp_path / "t", grid())
    blocker = tmp_path / "file"
    blocker.write_text("")
    code = (
        "import pathlib, sys; sys.path.insert(0, sys.argv[2]); from pricing_cases import one; "
        "from bitlane.perfcore import Store; print(one(Store([pathlib.Path(sys.argv[1])]), 'bfloat16', 8, 256, 256)[0])"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME")}
    environment |= {cache.ENVIRONMENT: str(blocker / "below"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "t"), str(Path(__file__).parent)],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert float(done.stdout) == pytest.approx(1.0 + 0.256 + 0.512 + 0.024, rel=1e-15)
    assert "temporary" in done.stderr
    assert "Traceback" not in done.stderr


def test_processes_may_compile_at_once(fresh_cache: Path, tmp_path: Path) -> None:
    write_gemm(tmp_path / "t", grid())
    code = (
        "import pathlib, sys; sys.path.insert(0, sys.argv[2]); from pricing_cases import one; "
        "from bitlane.perfcore import Store; print(one(Store([pathlib.Path(sys.argv[1])]), 'bfloat16', 8, 256, 256)[0])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "t"), str(Path(__file__).parent)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = {process.communicate()[0].strip() for process in running}
    assert all(process.returncode == 0 for process in running)
    assert len(answers) == 1
    assert not [*fresh_cache.glob("*.part")]


def test_bad_tables_are_refused(fresh_cache: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        Store([tmp_path / "absent"])
    (tmp_path / "t").mkdir()
    with pytest.raises(MissingDataError) as caught:
        Store([tmp_path / "t"]).table("gemm")
    assert caught.value.code == "BL513"
    (tmp_path / "t" / "gemm.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(MissingDataError) as caught:
        Store([tmp_path / "t"]).table("gemm")
    assert caught.value.code == "BL514"
    pq.write_table(pa.table({"latency_ms": [1.0]}), tmp_path / "t" / "gemm.parquet")
    with pytest.raises(MissingDataError) as caught:
        Store([tmp_path / "t"]).table("gemm")
    assert caught.value.code == "BL514"
    write_gemm(tmp_path / "t", [("bfloat16", 1, 128, 128, float("nan"))])
    with pytest.raises(MissingDataError) as caught:
        Store([tmp_path / "t"]).table("gemm")
    assert caught.value.code == "BL510"
    with pytest.raises(UsageError) as refused:
        Store([tmp_path / "t"]).table("gems")
    assert refused.value.code == "BL512"


def test_large_strings_and_dictionaries_are_one_type(fresh_cache: Path, tmp_path: Path) -> None:
    write_gemm(tmp_path / "t", grid())
    want = one(Store([tmp_path / "t"]), "bfloat16", 8, 256, 256)
    path = tmp_path / "t" / "gemm.parquet"
    table = pq.read_table(path)
    for name, kind in (("system", pa.large_string()), ("quant_mode", pa.dictionary(pa.int32(), pa.string()))):
        table = table.set_column(table.column_names.index(name), name, table[name].cast(kind))
    pq.write_table(table, path)
    assert one(Store([tmp_path / "t"]), "bfloat16", 8, 256, 256) == want
