from benchmarks.tpu_table import HEADER
from benchmarks.tpu_table import table_row

BASE = {
    "loss": "nll",
    "compile_cpu_seconds": 61.0,
    "flops": 2e12,
    "bytes_accessed": 4.095e9,
    "argument_bytes": 2**20,
    "temporary_bytes": 2**21,
    "code_bytes": 2**20,
}


def test_the_primary_loss_alone_adds_nothing():
    # 2e12 FLOPs at 197e12 a second take longer than the bytes do.
    costs = "yes | 61 | 2000.0 | 4.095 | 10.15 | 1.0 | 2.0 | 1.0"
    assert table_row(BASE, BASE) == f"| nll | {costs} | - | - | - | - |"


def test_what_the_secondary_loss_adds():
    row = {**BASE, "bytes_accessed": 16.38e9, "code_bytes": 2**21}
    costs = "yes | 61 | 2000.0 | 16.380 | 20.00 | 1.0 | 2.0 | 2.0"
    added = "+0.000% | +300.000% | +97.000% | +25.000%"
    assert table_row(row, BASE) == f"| nll | {costs} | {added} |"


def test_a_failure_says_why():
    row = {"loss": "nll + mmce", "error": "RESOURCE_EXHAUSTED"}
    line = table_row(row, BASE)
    assert line.startswith("| nll + mmce | no: RESOURCE_EXHAUSTED | - |")
    assert line.count("|") == HEADER.splitlines()[0].count("|")
    # Where the base failed, there is nothing to compare with.
    assert table_row(BASE, row).endswith("| - | - | - | - |")


def test_the_header_has_the_columns_of_the_rows():
    names, rule = HEADER.splitlines()
    row = table_row(BASE, BASE)
    assert names.count("|") == rule.count("|") == row.count("|")
