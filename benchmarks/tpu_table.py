"""The table of `tpu_compile.py`."""

# Of a v5e core: bfloat16, which its multiplications of float32 are too unless
# more is asked for; and the memory's bandwidth.
FLOPS_A_SECOND = 197e12
BYTES_A_SECOND = 819e9

HEADER = """\
| loss | compiled | CPU s | GFLOP | GB accessed | ms, estimated \
| arguments MiB | temporaries MiB | code MiB \
| + FLOP | + bytes | + time | + memory |
|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


def table_row(row, base):
    """A line of the table; `base` is the row of the primary loss alone."""
    if "error" in row:
        return f"| {row['loss']} | no: {row['error']} |" + " - |" * 11
    cells = [
        row["loss"],
        "yes",
        f"{row['compile_cpu_seconds']:.0f}",
        f"{row['flops'] / 1e9:.1f}",
        f"{row['bytes_accessed'] / 1e9:.3f}",
        f"{_seconds(row) * 1e3:.2f}",
    ]
    cells += [f"{size / 2**20:.1f}" for size in _memory(row)]
    if row is base or "error" in base:
        return f"| {' | '.join(cells)} |" + " - |" * 4
    quantities = (
        lambda row: row["flops"],
        lambda row: row["bytes_accessed"],
        _seconds,
        lambda row: sum(_memory(row)),
    )
    cells += [f"{part(row) / part(base) - 1:+.3%}" for part in quantities]
    return f"| {' | '.join(cells)} |"


def _seconds(row):
    return max(
        row["flops"] / FLOPS_A_SECOND, row["bytes_accessed"] / BYTES_A_SECOND
    )


def _memory(row):
    return [row[f"{kind}_bytes"] for kind in ("argument", "temporary", "code")]
