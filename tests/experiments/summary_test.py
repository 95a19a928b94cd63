import numpy as np
import pytest
from scipy import stats

from caltrain_tf.experiments.study_outcome import Failure
from caltrain_tf.experiments.summary import failures_table
from caltrain_tf.experiments.summary import summary_table

KEYS = ("accuracy", "ece", "ece_ts", "ece_ts_sb_ece")


def test_means_and_errors_of_objectives():
    rng = np.random.default_rng(0)
    rows = [
        {"objective": name, **dict(zip(KEYS, rng.random(4), strict=True))}
        for name in ("focal+sb_ece", "nll", "focal+sb_ece", "focal+sb_ece")
    ]
    head, focal, nll = summary_table(rows).splitlines()
    assert head.split() == [
        *("percent", "runs", "accuracy", "ECE", "ECE+TS", "ECE+TS-SB-ECE")
    ]
    assert focal.split()[:2] == ["focal+sb_ece", "3"]
    assert nll.split()[:2] == ["nll", "1"] and "±" not in nll
    numbers = [float(word) for word in focal.split()[2:] if word != "±"]
    values = [[row[key] for row in rows if row != rows[1]] for key in KEYS]
    expected = [
        100 * number for v in values for number in (np.mean(v), stats.sem(v))
    ]
    assert numbers == pytest.approx(expected, abs=0.006)


def test_failures_say_where_to_look():
    failure = Failure("nll seed 0", "exit code 1", "KeyError: 'x'", "a/log.txt")
    text = failures_table([failure, failure])
    assert text.count("nll seed 0: exit code 1") == 2
    assert "KeyError: 'x'" in text and "a/log.txt" in text
