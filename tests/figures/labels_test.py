import pytest

import caltrain_tf as ct
from caltrain_tf.figures import labels


@pytest.mark.parametrize(
    "objective, label",
    [
        ("nll", "NLL"),
        ("focal+sb_ece", "Focal + SB-ECE"),
        ("mse+avuc_gs", "MSE + AvUC-GS"),
        ("nll+s_avuc-interleaved", "NLL + S-AvUC (interleaved)"),
        ("my_loss+mmce", "my_loss + MMCE"),
    ],
)
def test_objectives(objective, label):
    assert ct.figures.objective_label(objective) == label


@pytest.mark.parametrize(
    "metric, label, factor",
    [
        ("ece", "ECE (%)", 100),
        ("ece_ts", "ECE + TS (%)", 100),
        ("ece_ts_sb_ece", "ECE + TS-SB-ECE (%)", 100),
        ("ece_dirichlet", "ECE + Dirichlet (%)", 100),
        ("mean_sweep_ce_ts", "Mean-sweep CE + TS (%)", 100),
        ("nll_ts", "NLL + TS", 1),
        ("temperature_ts", "Temperature + TS", 1),
        ("average_uncertainty", "Average uncertainty (nats)", 1),
        ("something", "something", 1),
    ],
)
def test_metrics(metric, label, factor):
    assert ct.figures.metric_label(metric) == label
    short = ct.figures.metric_label(metric, unit=False)
    assert short == label.split(" (")[0]
    assert labels.metric_factor(metric) == factor


def test_calibrators():
    names = ("none", "ts", "ts_sb_ece", "dirichlet")
    assert [ct.figures.calibrator_label(name) for name in names] == [
        *("no scaling", "TS", "TS-SB-ECE", "Dirichlet")
    ]
