"""What the columns of a measured table mean: keys, values, and which two schemas are the same."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import BitlaneError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LEAD: Final = ("system", "backend", "backend_version", "op_kind")
VALUE: Final = "latency_ms"
KERNEL: Final = "kernel_source"
SOURCE: Final = "source_id"
TAIL: Final = (KERNEL, VALUE, SOURCE)

# Tables whose rows are single kernels of one operation: there the kernel's name is part of the key.
KERNEL_IN_KEY: Final = frozenset({"gdn", "mamba2"})

_TEXT: Final = frozenset({*LEAD, KERNEL, "quant_mode", "routing_distribution"})
# Shape columns of the tables that this collector measures itself.
SHAPES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "gemm": ("quant_mode", "m_tokens", "n_out_features", "k_in_features"),
        "moe": (
            "quant_mode",
            "routing_distribution",
            "hidden_size",
            "inter_size",
            "topk",
            "num_experts",
            "moe_tp_size",
            "moe_ep_size",
            "num_tokens",
        ),
    }
)


def table_schema(table: str) -> pa.Schema:
    """Schema of a table that this collector starts from nothing.

    Parameters
    ----------
    table
        A key of :data:`SHAPES`.

    Raises
    ------
    BitlaneError
        ``BL702`` for another table.
    """
    if table not in SHAPES:
        raise BitlaneError(
            "BL702",
            f"the collector has no schema for a table `{table}`",
            place=table,
            help=f"it measures {', '.join(sorted(SHAPES))}; other tables can only be appended to",
        )
    return pa.schema([_field(name) for name in (*LEAD, *SHAPES[table], *TAIL)])


def _field(name: str) -> pa.Field:
    kind = pa.string() if name in _TEXT else pa.float64() if name == VALUE else pa.int64()
    return pa.field(name, kind, nullable=False)


def without_source(schema: pa.Schema) -> pa.Schema:
    """Schema of rows that no source number has been given yet."""
    return pa.schema([field for field in schema if field.name != SOURCE])


def key_columns(table: str, names: Sequence[str]) -> tuple[str, ...]:
    """Columns that identify a row of `table`, in table order.

    The kernel that ran is a result, not a question, so it is left out; in the tables of :data:`KERNEL_IN_KEY` an
    operation is a sum over kernels and each has its own row.
    """
    values = {VALUE, SOURCE} if table in KERNEL_IN_KEY else {VALUE, SOURCE, KERNEL}
    return tuple(name for name in names if name not in values)


def logical(kind: pa.DataType) -> str:
    """Name of a type with its physical variants folded: ``string`` and ``large_string`` are one."""
    return "string" if pa.types.is_string(kind) or pa.types.is_large_string(kind) else str(kind)


def differences(expected: pa.Schema, given: pa.Schema) -> list[str]:
    """What is logically different between two schemas, one sentence each; empty when rows may be appended.

    Nullability and schema metadata are physical, as is the width of string offsets: a table that went through a data
    frame changes in exactly these.
    """
    found = [f"column `{name}` is missing" for name in expected.names if name not in given.names]
    found += [f"column `{name}` is not in the table" for name in given.names if name not in expected.names]
    found += [
        f"column `{name}` is {logical(given.field(name).type)}, the table has {logical(expected.field(name).type)}"
        for name in expected.names
        if name in given.names and logical(expected.field(name).type) != logical(given.field(name).type)
    ]
    if not found and list(expected.names) != list(given.names):
        found.append(f"the columns stand in another order: {', '.join(given.names)}")
    return found


def conform(rows: pa.Table, schema: pa.Schema, place: str) -> pa.Table:
    """`rows` with exactly `schema`, values untouched.

    Raises
    ------
    BitlaneError
        ``BL703`` if the schemas differ in more than representation; ``BL704`` if a value is null, or a latency is not
        a finite positive number.
    """
    wrong = differences(schema, rows.schema)
    if wrong:
        raise BitlaneError(
            "BL703",
            f"the rows do not have the table's schema: {'; '.join(wrong)}",
            place=place,
            help="rows are appended, a table is never replaced; convert the rows, or keep them in a table of their own",
        )
    columns = [rows[name].cast(schema.field(name).type) for name in schema.names]
    _refuse_bad_values(dict(zip(schema.names, columns, strict=True)), place)
    return pa.table(columns, schema=schema)


def _refuse_bad_values(columns: Mapping[str, pa.ChunkedArray], place: str) -> None:
    empty = [name for name, column in columns.items() if column.null_count]
    bad = 0
    if VALUE in columns and not empty:
        good = pc.and_(pc.is_finite(columns[VALUE]), pc.greater(columns[VALUE], 0.0))
        bad = pc.sum(pc.invert(good)).as_py() or 0
    if empty or bad:
        what = f"null values in {', '.join(empty)}" if empty else f"{bad} latencies that are not finite and positive"
        raise BitlaneError(
            "BL704",
            f"the rows hold {what}",
            place=place,
            help="a case without a result is a failure record, not a row",
        )


def sort_by_key(table: str, rows: pa.Table) -> pa.Table:
    """`rows` ascending by key, so that the order of merges leaves no trace in the file."""
    keys = key_columns(table, rows.column_names)
    return rows.take(pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in keys])).combine_chunks()


def key_tuples(rows: pa.Table, keys: Sequence[str]) -> list[tuple[object, ...]]:
    """Key of every row, in row order."""
    return list(zip(*(rows[name].to_pylist() for name in keys), strict=True))
