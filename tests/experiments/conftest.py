import pytest

from caltrain_tf.experiments import collect, report
from tests.experiments import finished_runs as fake_runs


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """Two objectives of two seeds each; only to be read."""
    return fake_runs.write_runs(tmp_path_factory.mktemp("study") / "runs")


@pytest.fixture(scope="session")
def rows(runs):
    return collect.collect(runs)


@pytest.fixture(scope="session")
def page(rows, tmp_path_factory):
    """The path of their report."""
    path = tmp_path_factory.mktemp("reports") / "report.html"
    report.write_report(rows, path, command="python report.py 'a b'")
    return path
