"""Kill a writer with SIGKILL at random moments and look at what is left.

A forked child appends parts to a run of its own and merges it into one shared folder of tables, and reports each
acknowledged step through a pipe. A second child merges into the same folder at the same time. The parent kills the
first (sometimes both), opens everything anew and checks:

* every acknowledged part is in its run, byte for byte;
* the table is readable, its sidecar belongs to it, keys are unique;
* every row whose merge was acknowledged is in the table with the newest acknowledged value.

    python -m tests.crash.kill_nine --kills 1000 [--seed 1] [--folder DIR] [--careless]

``--careless`` writes the table in place instead, as a control: the same check must then find damage.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import random
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from bitlane.collector import journal, parts, runfile, sidecar
from bitlane.collector.durable import digest
from bitlane.collector.merge import merge
from bitlane.collector.parts import parquet_bytes, parquet_rows
from bitlane.collector.provenance import case_plan_hash
from bitlane.collector.root import open_root
from bitlane.collector.schema import SOURCE, key_columns, key_tuples, table_schema, without_source
from bitlane.collector.sidecar import Runtime

SCHEMA = without_source(table_schema("gemm"))
START_ROWS = 20_000
FRESH_AFTER = 100


@dataclass
class Ledger:
    """What the children were told is safe."""

    parts: dict[str, dict[int, float]] = field(default_factory=dict)
    merged: dict[int, tuple[str, float]] = field(default_factory=dict)
    in_flight: dict[int, list[tuple[str, float]]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    merge_s: float = 0.1


def rows_of(values: dict[int, float]) -> pa.Table:
    """One row per m, made up."""
    fixed = {
        "system": "cpu_test",
        "backend": "crash_test",
        "backend_version": "1",
        "op_kind": "gemm",
        "quant_mode": "bfloat16",
        "n_out_features": 64,
        "k_in_features": 64,
        "kernel_source": "none",
    }
    plain = [{**fixed, "m_tokens": m, "latency_ms": latency} for m, latency in values.items()]
    return pa.Table.from_pylist(plain, schema=SCHEMA)


def new_run(folder: Path) -> None:
    """Identity of a run of made-up rows."""
    runfile.write_identity(
        folder,
        runfile.RunIdentity(
            engine="crash_test",
            system="cpu_test",
            backend="crash_test",
            backend_version="1",
            device="none",
            runtime=Runtime("none", "0"),
            collector_ref="unknown",
            collector_hash="0" * 64,
            plan_hash=case_plan_hash(["a"]),
            planned=1,
            seed=0,
            run_id=str(folder),
            provenance="synthetic",
        ),
    )


def writer(base: Path, name: str, seed: int, answer: int, careless: bool) -> None:
    """The child: append, merge, append, ... until killed."""
    chance = random.Random(seed)
    run = base / "runs" / name
    new_run(run)
    step = 0
    while True:
        values = {chance.randint(1, 4000): chance.uniform(0.001, 10.0) for _ in range(chance.randint(1, 40))}
        log = journal.Journal(run / parts.JOURNAL)
        at = f"{time.time():020.6f}"
        tell(answer, {"try": values, "at": at, "run": name})
        part = parts.append_part(log, run, "gemm", rows_of(values), {"cases": [f"{name}-{step}"], "at": at})
        tell(answer, {"appended": part.name, "run": name})
        step += 1
        if chance.random() < 0.5:
            if careless:
                overwrite(base / "root", run)
            else:
                merge([run], base / "root", allow_synthetic=True)
            tell(answer, {"merged": name})


def overwrite(root: Path, run: Path) -> None:
    """The control: the way that loses rows."""
    path = root / "gemm.parquet"
    rows = parquet_rows(path.read_bytes(), str(path))
    records = journal.read(run / parts.JOURNAL).records
    new = pa.concat_tables([parts.load(run, part) for part in parts.committed(records)])
    new = new.append_column(SOURCE, pa.array([9] * new.num_rows, pa.int64())).cast(rows.schema)
    path.write_bytes(parquet_bytes(pa.concat_tables([rows, new])))


def tell(descriptor: int, message: object) -> None:
    """One line to the parent, in one write."""
    os.write(descriptor, json.dumps(message).encode() + b"\n")


def note(ledger: Ledger, lines: list[str], pending: dict[str, list[dict[str, object]]]) -> None:
    """Fold a child's messages into what is known to be safe."""
    attempts: dict[str, dict[str, object]] = {}
    for line in lines:
        message = json.loads(line)
        if "try" in message:
            attempts[message["run"]] = message
        elif "appended" in message:
            attempt = attempts[message["run"]]
            values = {int(m): latency for m, latency in attempt["try"].items()}  # type: ignore[attr-defined]
            ledger.parts[f"{message['run']}/{message['appended']}"] = values
            pending.setdefault(message["run"], []).append({"values": values, "at": attempt["at"]})
            ledger.counts["appended"] += 1
        else:
            at, values = event(pending.pop(message["merged"], []))
            for m, latency in values.items():
                ledger.merged[m] = max(ledger.merged.get(m, ("", 0.0)), (at, latency))
            ledger.counts["merged"] += 1
    for batches in pending.values():
        for batch in batches:
            # A merge nobody was answered for may have taken any number of them.
            for m, latency in batch["values"].items():  # type: ignore[attr-defined]
                ledger.in_flight.setdefault(m, []).append((str(batches[-1]["at"]), latency))


def event(batches: list[dict[str, object]]) -> tuple[str, dict[int, float]]:
    """Date and values of one merge: an event is as new as its last part, and its last row of a key counts."""
    values: dict[int, float] = {}
    for batch in batches:
        values.update(batch["values"])  # type: ignore[call-overload]
    return (str(batches[-1]["at"]) if batches else ""), values


def verify(base: Path, ledger: Ledger) -> list[str]:
    """What is wrong, one line each."""
    wrong: list[str] = []
    for name, values in ledger.parts.items():
        run, part_name = name.split("/")
        state = journal.read(base / "runs" / run / parts.JOURNAL)
        found = [part for part in parts.committed(state.records) if part.name == part_name]
        try:
            rows = parts.load(base / "runs" / run, found[0]).to_pylist() if found else []
        except Exception as error:
            wrong.append(f"part {name} cannot be read: {error}")
            continue
        if {row["m_tokens"]: row["latency_ms"] for row in rows} != values:
            wrong.append(f"acknowledged part {name} is gone or changed")
    path = base / "root/gemm.parquet"
    try:
        data = path.read_bytes()
        table = parquet_rows(data, str(path))
    except Exception as error:
        return [*wrong, f"unreadable table: {error}"]
    meta = sidecar.read(base / "root", "gemm")
    if meta is None or meta.sha256 != digest(data) or meta.rows != table.num_rows:
        wrong.append("the sidecar does not belong to the table")
    keys = key_tuples(table, key_columns("gemm", table.column_names))
    if len(set(keys)) != len(keys):
        wrong.append("a key occurs twice")
    stored = {row["m_tokens"]: row["latency_ms"] for row in table.to_pylist() if row["n_out_features"] == 64}
    for m, (at, latency) in ledger.merged.items():
        newer = {value for when, value in ledger.in_flight.get(m, []) if when >= at}
        if stored.get(m) not in {latency, *newer}:
            wrong.append(f"acknowledged row m={m} is {stored.get(m)}, not {latency}")
    return wrong


def start(base: Path) -> Ledger:
    """A table of some size, so that writing it takes a while; notes how long a merge takes here."""
    base.mkdir(parents=True, exist_ok=True)
    new_run(base / "runs" / "start")
    log = journal.Journal(base / "runs/start" / parts.JOURNAL)
    rows = rows_of({m: 1.0 + m / 7.0 for m in range(1, START_ROWS + 1)})
    rows = rows.set_column(
        rows.column_names.index("n_out_features"), SCHEMA.field("n_out_features"), pa.array([1] * START_ROWS)
    )
    parts.append_part(log, base / "runs/start", "gemm", rows, {"cases": ["start"], "at": "0"})
    began = time.monotonic()
    merge([base / "runs/start"], base / "root", allow_synthetic=True)
    return Ledger(merge_s=min(time.monotonic() - began, 2.0))


def child(base: Path, name: str, seed: int, careless: bool) -> tuple[int, int]:
    """Fork a writer; returns its id and the read end of its pipe."""
    read_end, write_end = os.pipe()
    # Room for all messages of a round: nobody reads while the writers write.
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 1 << 20)
    pid = os.fork()
    if pid:
        os.close(write_end)
        return pid, read_end
    os.close(read_end)
    try:
        writer(base, name, seed, write_end, careless)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(2, f"writer failed: {error}\n".encode())
    finally:
        os._exit(1)


def round_of_kills(base: Path, chance: random.Random, number: int, ledger: Ledger, careless: bool) -> int:
    """Two writers, one killed at a random moment and the other soon after; returns how many were alive to be killed."""
    children = [child(base, f"w{number}-{side}", chance.randrange(2**32), careless) for side in range(2)]
    # From the moment both are at work, up to three merges long: kills fall into every part of the work, on any machine.
    for _, descriptor in children:
        select.select([descriptor], [], [], 60.0)
    time.sleep(chance.uniform(0.0, 3 * ledger.merge_s))
    killed = 0
    for pid, _ in children:
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        killed += os.WIFSIGNALED(status)
        time.sleep(chance.uniform(0.0, 0.05))
    pending: dict[str, list[dict[str, object]]] = {}
    for _, descriptor in children:
        with os.fdopen(descriptor) as pipe:
            text = pipe.read()
        # The last line may be cut: it was not fully said, so it is not a promise.
        note(ledger, text.split("\n")[:-1], pending)
    return killed


def run(kills: int, seed: int, folder: Path, careless: bool = False) -> tuple[int, int, Counter[str], list[str]]:
    """Kill until `kills` writers died; returns kills, rounds, acknowledged counts and all damage."""
    chance = random.Random(seed)
    done = rounds = 0
    damage: list[str] = []
    totals: Counter[str] = Counter()
    base, ledger = folder / "0", Ledger()
    while done < kills:
        if rounds % FRESH_AFTER == 0:
            base = folder / str(rounds)
            ledger = start(base)
        before = ledger.counts.copy()
        done += round_of_kills(base, chance, rounds, ledger, careless)
        rounds += 1
        if not careless:
            with open_root(base / "root") as root:
                totals["merges finished on reopening"] += sum("finished" in text for text in root.notices)
                totals["torn journals"] += sum("unfinished" in text for text in root.notices)
        found = verify(base, ledger)
        damage += [f"round {rounds}: {text}" for text in found]
        totals.update(ledger.counts - before)
        if found:
            base = folder / f"after-damage-{rounds}"
            ledger = start(base)
    return done, rounds, totals, damage


def main() -> int:
    """Entry point; exit code 1 if anything acknowledged was lost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--careless", action="store_true")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = options.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        began = time.monotonic()
        kills, rounds, totals, damage = run(options.kills, options.seed, folder, options.careless)
    for text in damage[:20]:
        print(text)
    said = ", ".join(f"{count} {name}" for name, count in sorted(totals.items()))
    print(f"{kills} kills in {rounds} rounds, {time.monotonic() - began:.0f} s; acknowledged and kept: {said}")
    print(f"damage: {len(damage)}")
    return 1 if damage else 0


if __name__ == "__main__":
    sys.exit(main())
