"""Column numbers of the packed integer tables, shared by the packer, the numpy path and the kernels."""

from __future__ import annotations

from typing import Final

# One row of `slabs` per slab: where its parts lie in the flat arrays, and its rules.
A0_OFF: Final = 0
A0_N: Final = 1
A1_OFF: Final = 2
A1_N: Final = 3
X_OFF: Final = 4
X_N: Final = 5
VAL_OFF: Final = 6  # first cell in `values`; cells run [a0, a1, x], x fastest
SITE_OFF: Final = 7  # first row in `sites`; sites run [a0, a1]
COL_OFF: Final = 8  # first entry of `col_ptr` and `full_rank`; a1_n + 1 entries
FULL_OFF: Final = 9  # `full`: a1 indices whose a0 list is (nearly) complete
FULL_N: Final = 10
CLS0_OFF: Final = 11  # `curve`: x indices of the first curve, then of the second
CLS0_N: Final = 12
CLS1_OFF: Final = 13
CLS1_N: Final = 14
TRANSFORM: Final = 15
SPLIT_RULE: Final = 16  # 0 none, 1 modulo, 2 equals
SPLIT_VALUE: Final = 17
A0_HIGH: Final = 18
A1_HIGH: Final = 19
X_HIGH: Final = 20
ALIGN0: Final = 21
ALIGN1: Final = 22
GROUP: Final = 23
SOURCE: Final = 24
RANK_OFF: Final = 25  # `rank`: per a1 column, how many of its listed sites lie before each a0 position (a0_n + 1 each)
SLAB_COLUMNS: Final = 26

# One row of `sites` per (a0, a1): first and last filled entry of each curve, first > last when the site has none.
LO0: Final = 0
HI0: Final = 1
LO1: Final = 2
HI1: Final = 3
SITE_COLUMNS: Final = 4

# `marks` of a cell.
ABSENT: Final = 0
MEASURED: Final = 1
FILLED: Final = 2  # between measured samples, on the grid, but itself missing

# One row of a roofline: which sum it adds to, and coefficient * a0**p0 * a1**p1 * form(x, parameter).
R_BYTES: Final = 0  # 0 compute, 1 memory or link
R_COEF: Final = 1  # milliseconds
R_P0: Final = 2
R_P1: Final = 3
R_FORM: Final = 4  # 0: 1; 1: max(x - p, 0); 2: max(x - p, 0)^2; 3: 1 - exp(-p x)
R_PARAM: Final = 5
R_COLUMNS: Final = 6
R_ROWS: Final = 6
