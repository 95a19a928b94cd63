import functools

from tests.baselines.scripts import run_here
from tests.experiments import finished_runs as fake_runs

run = functools.partial(run_here, "report.py")


def test_a_page_of_the_finished_runs(tmp_path):
    runs = fake_runs.write_runs(tmp_path / "runs", seeds=(0,))
    (runs / "half").mkdir()
    (runs / "half" / "config.json").write_text("{}")
    output = tmp_path / "page.html"
    done = run(runs, f"--output={output}")
    assert done.returncode == 0, done.stderr
    assert "NLL + MMCE" in done.stdout and str(output) in done.stdout
    assert "2 runs in 1 setting" in output.read_text()
    assert (tmp_path / "page_rows" / "results.csv").exists()
