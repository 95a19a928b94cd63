import pytest

from tests.training import tiny


def test_refuses_what_does_not_fit(two_replicas, tmp_path):
    trained = tiny.trainer()
    data = tiny.dataset()
    with pytest.raises(ValueError, match="held_out.*go together"):
        trained.fit(data, 1, held_out=data)
    with pytest.raises(ValueError, match="Pass `dataset_steps`"):
        trained.fit(data.filter(lambda x, y: True), 1)
    with pytest.raises(ValueError, match="dataset_steps=9, batches=4"):
        trained.fit(data, 1, dataset_steps=9)
    with pytest.raises(ValueError, match="best='test/ece'"):
        trained.fit(data, 1, evaluations={"test": data}, best="test/ece")
    with pytest.raises(ValueError, match="must be a `tf.data.Dataset`"):
        trained.fit([1, 2], 1)
    with pytest.raises(ValueError, match="keep=1"):
        trained.fit(data, 1, run=tmp_path, keep=1)
    replicated = tiny.trainer(two_replicas)
    ragged = tiny.dataset(drop_remainder=False)
    with pytest.raises(ValueError, match="drop_remainder=True"):
        replicated.fit(ragged, 1)
    with pytest.raises(ValueError, match="batch size=5, replicas=2"):
        replicated.fit(tiny.dataset(batch=5), 1)


def test_unknown_number_of_batches_with_steps():
    trained = tiny.trainer()
    endless = tiny.dataset().repeat()
    rows = trained.fit(endless, 2, dataset_steps=3, verbose=False)
    assert rows[-1]["step"] == 6
