import json

import pytest

from caltrain_tf.experiments.overrides import read_tuned


def test_a_file_of_settings(tmp_path):
    tuned = {"focal+sb_ece": {"loss.beta": 0.3}, "nll": {}}
    (tmp_path / "tuned.json").write_text(json.dumps(tuned))
    assert read_tuned(tmp_path / "tuned.json") == tuned


@pytest.mark.parametrize("text", ["[]", '{"nll": 1}', "{"])
def test_files_of_something_else(tmp_path, text):
    (tmp_path / "tuned.json").write_text(text)
    with pytest.raises(ValueError, match="tuned.json must be"):
        read_tuned(tmp_path / "tuned.json")
