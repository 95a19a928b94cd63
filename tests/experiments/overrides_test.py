import json

import pytest

from caltrain_tf.experiments.overrides import read_tuned


def test_a_file_of_settings(tmp_path):
    tuned = {"focal+sb_ece": {"loss.beta": 0.3}, "nll": {}}
    (tmp_path / "tuned.json").write_text(json.dumps(tuned))
    assert read_tuned(tmp_path / "tuned.json") == tuned


def write_best(folder, objective, data="digits", **overrides):
    folder.mkdir(parents=True)
    best = {"objective": objective, "data": data, "overrides": overrides}
    (folder / "best.json").write_text(json.dumps(best))


def test_what_tuning_leaves_behind(tmp_path):
    write_best(tmp_path / "a", "nll", **{"optimizer.l2": 1e-4})
    write_best(tmp_path / "b" / "c", "mse", **{"loss.beta": 3.0})
    expected = {"nll": {"optimizer.l2": 1e-4}, "mse": {"loss.beta": 3.0}}
    assert read_tuned(tmp_path, "digits") == expected
    alone = read_tuned(tmp_path / "a" / "best.json")
    assert alone == {"nll": {"optimizer.l2": 1e-4}}
    with pytest.raises(ValueError, match="tuning on 'cifar10'.*'digits'"):
        read_tuned(tmp_path, "cifar10")
    write_best(tmp_path / "d", "nll")
    with pytest.raises(ValueError, match="a/best.json and .*d/best.json of"):
        read_tuned(tmp_path)
    (tmp_path / "e").mkdir()
    with pytest.raises(ValueError, match="hold best.json"):
        read_tuned(tmp_path / "e")


@pytest.mark.parametrize("text", ["[]", '{"nll": 1}', "{"])
def test_files_of_something_else(tmp_path, text):
    (tmp_path / "tuned.json").write_text(text)
    with pytest.raises(ValueError, match="tuned.json must be"):
        read_tuned(tmp_path / "tuned.json")
