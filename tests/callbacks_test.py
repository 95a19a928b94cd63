"""The loss after temperature scaling, as a callback of `model.fit`."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.optimize import minimize_scalar

import caltrain_tf as ct

SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def problem(examples=192, seed=0):
    """Three classes that overlap, two thirds of it to validate."""
    generator = np.random.default_rng(seed)
    labels = np.arange(examples) % 3
    centres = np.random.default_rng(7).normal(size=(3, 5))
    x = centres[labels] + 1.5 * generator.normal(size=(examples, 5))
    x, labels = x.astype("float32"), labels.astype("int32")
    part = examples // 3
    return (x[:part], labels[:part]), (x[part:], labels[part:])


TRAIN, VALIDATION = problem()


def network(outputs=3, activation=None, compiled=SPARSE, dropout=0.0):
    keras.utils.set_random_seed(1)
    layers = [keras.Input([5]), keras.layers.Dense(16, "relu")]
    layers += [keras.layers.BatchNormalization(), keras.layers.Dropout(dropout)]
    layers += [keras.layers.Dense(outputs, activation)]
    model = keras.Sequential(layers)
    model.compile(keras.optimizers.SGD(0.3, momentum=0.9), compiled)
    return model


def fit(model, callbacks, epochs=2, data=TRAIN, **options):
    options = {"batch_size": 32, "verbose": 0, **options}
    return model.fit(*data, epochs=epochs, callbacks=callbacks, **options)


def naive(logits, labels, weight=None):
    """The smallest mean NLL over temperatures, and where it is."""
    logits = np.asarray(logits, np.float64)
    weight = np.ones(len(labels)) if weight is None else weight

    def nll(log_temperature):
        scaled = logits / math.exp(log_temperature)
        scaled -= scaled.max(axis=1, keepdims=True)
        log_probs = scaled - np.log(np.exp(scaled).sum(axis=1, keepdims=True))
        terms = -log_probs[np.arange(len(labels)), labels]
        return np.average(terms, weights=weight)

    best = minimize_scalar(
        nll, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9}
    )
    return best.fun, math.exp(best.x)


def test_callbacks_after_it_see_the_values(tmp_path, capsys):
    path, logits = tmp_path / "best.weights.h5", []

    class Watch(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logits.append(self.model.predict(VALIDATION[0], verbose=0))

    stop = keras.callbacks.EarlyStopping(
        "val_ts_nll", mode="min", patience=2, restore_best_weights=True
    )
    save = keras.callbacks.ModelCheckpoint(
        path,
        "val_ts_nll",
        mode="min",
        save_best_only=True,
        save_weights_only=True,
    )
    model = network()
    before = model.metrics_names
    history = fit(
        model,
        [ct.callbacks.TemperatureScaledLoss(VALIDATION), stop, save, Watch()],
        epochs=30,
        verbose=2,
    ).history
    assert list(history) == ["loss", "val_ts_nll", "val_temperature"]
    values = history["val_ts_nll"]
    assert len(values) < 30
    # 2e-8 and 2e-6 is what float32 leaves; at a temperature of 1 the value
    # would differ by more than 1e-3.
    for index, each in enumerate(logits):
        nll, best = naive(each, VALIDATION[1])
        assert values[index] == pytest.approx(nll, abs=2e-7)
        temperature = history["val_temperature"][index]
        assert temperature == pytest.approx(best, rel=2e-5)
    assert stop.best_epoch == np.argmin(values) == len(values) - 3
    assert "val_ts_nll: 0." in capsys.readouterr().out
    kept = model.get_weights()
    logits = model.predict(VALIDATION[0], verbose=0)
    found = ct.callbacks.temperature_scaled_nll(logits, VALIDATION[1])
    # Batches of another size round otherwise.
    assert found["ts_nll"] == pytest.approx(min(values), abs=1e-6)
    model.load_weights(path)
    for left, right in zip(kept, model.get_weights(), strict=True):
        np.testing.assert_array_equal(left, right)
    # The model is as it was.
    assert model.metrics_names == before
    model.save(tmp_path / "model.keras")
    keras.saving.load_model(tmp_path / "model.keras")


def test_training_is_not_disturbed():
    ends = []
    for callbacks in ([], [ct.callbacks.TemperatureScaledLoss(VALIDATION)]):
        model = network(dropout=0.3)
        history = fit(model, callbacks, epochs=2, validation_data=VALIDATION)
        ends.append((history.history["val_loss"], model.get_weights()))
    assert ends[0][0] == ends[1][0]
    for left, right in zip(ends[0][1], ends[1][1], strict=True):
        np.testing.assert_array_equal(left, right)


class Batches(keras.utils.PyDataset):
    def __init__(self, *arrays):
        super().__init__()
        self.arrays = arrays

    def __len__(self):
        return math.ceil(len(self.arrays[0]) / 50)

    def __getitem__(self, index):
        rows = slice(50 * index, 50 * index + 50)
        return tuple(array[rows] for array in self.arrays)


def logged(data, model, **options):
    """What is logged after an epoch, of a model as it is."""
    callback = ct.callbacks.TemperatureScaledLoss(data, **options)
    callback.set_model(model)
    logs = {}
    callback.on_train_begin()
    callback.on_epoch_end(0, logs)
    return logs["val_ts_nll"], logs["val_temperature"]


@pytest.fixture(scope="module")
def trained():
    """A network that is better than chance."""
    model = network()
    fit(model, [])
    return model


@pytest.mark.parametrize("weighted", [False, True])
def test_every_kind_of_validation_data(trained, weighted):
    arrays = VALIDATION
    if weighted:
        weight = np.random.default_rng(3).random(128).astype("float32")
        arrays = (*VALIDATION, weight * (np.arange(128) > 20))
    expected = logged(arrays, trained)
    dataset = tf.data.Dataset.from_tensor_slices(arrays)
    batches = Batches(*arrays)
    kinds = [
        dataset.batch(50),
        dataset.shuffle(128).batch(50),
        dataset.filter(lambda *row: True).batch(50),
        batches,
        [batches[index] for index in range(3)],
        [list(batches[index]) for index in range(3)],
        (arrays[0], list(arrays[1]), *arrays[2:]),
    ]
    for data in kinds:
        # Rows in another order, and batches of other sizes, round otherwise.
        assert logged(data, trained) == pytest.approx(expected, rel=1e-5)
    if weighted:
        assert expected != pytest.approx(logged(VALIDATION, trained), rel=1e-3)


def test_replicas_count_every_example_once(two_replicas):
    keras.utils.set_random_seed(0)
    with two_replicas.scope():
        model = keras.Sequential([keras.Input([5]), keras.layers.Dense(3)])
        model.compile("sgd", SPARSE)
    kernel, bias = model.get_weights()
    expected = naive(VALIDATION[0] @ kernel + bias, VALIDATION[1])
    dataset = tf.data.Dataset.from_tensor_slices(VALIDATION).batch(50)
    for data in (VALIDATION, dataset):
        assert logged(data, model) == pytest.approx(expected, rel=1e-4)


def with_softmax(model, activation, compiled):
    """The same network, which ends in an activation."""
    outputs = keras.layers.Activation(activation)(model.outputs[0])
    model = keras.Model(model.inputs, outputs)
    model.compile("sgd", compiled)
    return model


def test_probabilities_are_those_of_the_logits(trained):
    logits = logged(VALIDATION, trained)
    one_hot = (VALIDATION[0], np.eye(3)[VALIDATION[1]])
    assert logged(one_hot, trained) == logits
    for compiled in (
        "sparse_categorical_crossentropy",
        keras.losses.sparse_categorical_crossentropy,
        ct.losses.NLL(),
    ):
        model = with_softmax(trained, "softmax", compiled)
        assert logged(VALIDATION, model) == pytest.approx(logits, rel=1e-4)


@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_binary_problems(activation):
    (x, y), (x_val, y_val) = TRAIN, VALIDATION
    compiled = keras.losses.BinaryCrossentropy(from_logits=activation is None)
    model = network(1, activation, compiled)
    fit(model, [], data=(x, 1.0 * (y[:, None] == 0)))
    logits = model.predict(x_val, verbose=0)
    if activation:
        logits = np.log(logits) - np.log1p(-logits)
    y_val = (y_val == 0).astype(int)
    expected = naive(np.concatenate([0 * logits, logits], axis=1), y_val)
    for labels in (y_val, y_val[:, None]):
        value = logged((x_val, labels), model)
        assert value == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    "compiled",
    [
        keras.losses.BinaryCrossentropy(from_logits=True),
        ct.losses.NLL(from_logits=True, multi_label=True),
    ],
)
def test_many_labels(compiled):
    model = network(2, None, compiled)
    (x, y), (x_val, y_val) = TRAIN, VALIDATION
    fit(model, [], data=(x, np.eye(3)[y][:, :2]))
    y_val = np.eye(3, dtype=int)[y_val][:, :2]
    logits = model.predict(x_val, verbose=0).reshape(-1, 1)
    pairs = np.concatenate([0 * logits, logits], axis=1)
    expected = naive(pairs, y_val.reshape(-1))
    assert logged((x_val, y_val), model) == pytest.approx(expected, rel=1e-4)


def tagger(mask_zero):
    keras.utils.set_random_seed(2)
    model = keras.Sequential(
        [
            keras.Input([None], dtype="int32"),
            keras.layers.Embedding(10, 8, mask_zero=mask_zero),
            keras.layers.Dense(8, "relu"),
            keras.layers.Dense(4),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=None if mask_zero else -1
    )
    model.compile(keras.optimizers.Adam(0.05), loss)
    return model


def test_tokens_that_are_masked_or_ignored():
    generator = np.random.default_rng(0)
    tokens = generator.integers(1, 10, (60, 7)).astype("int32")
    noise = generator.integers(0, 4, tokens.shape)
    labels = np.where(generator.random(tokens.shape) < 0.7, tokens % 4, noise)
    length = generator.integers(2, 8, 60)
    real = np.arange(7) < length[:, None]
    tokens = np.where(real, tokens, 0)
    labels = labels.astype("int32")
    ignored = np.where(real, labels, -1)
    model = tagger(True)
    fit(model, [], 1, (tokens, labels))
    logits = model.predict(tokens, verbose=0)
    expected = pytest.approx(naive(logits[real], labels[real]), rel=1e-4)
    assert logged((tokens, labels), model) == expected
    # Batches of sequences of different lengths, and weights of sequences.
    order = np.argsort(length)
    batches = [
        (tokens[rows, : length[rows].max()], labels[rows, : length[rows].max()])
        for rows in np.split(order, 3)
    ]
    assert logged(batches, model) == expected
    weight = generator.integers(0, 3, 60).astype("float32")
    weights = np.broadcast_to(weight[:, None], real.shape)[real]
    assert logged((tokens, labels, weight), model) == pytest.approx(
        naive(logits[real], labels[real], weights), rel=1e-4
    )
    # By a label instead of a mask.
    unmasked = tagger(False)
    unmasked.set_weights(model.get_weights())
    assert logged((tokens, ignored), unmasked) == expected
    assert logged((tokens, labels), unmasked) != expected


def test_labels_of_groups_are_left_out():
    loss, classes = ct.losses.Groupwise("nll", 2, from_logits=True), 2

    def pairs(data):
        labels = data[1] % classes
        # Of two classes, pairs look like one-hot rows.
        return data[0], np.stack([labels, 1 - labels % 2], axis=1)

    x, both = pairs(VALIDATION)
    model = network(classes, compiled=loss)
    callback = ct.callbacks.TemperatureScaledLoss((x, both))
    history = fit(model, [callback], 1, pairs(TRAIN)).history
    expected, _ = naive(model.predict(x, verbose=0), both[:, 0])
    assert history["val_ts_nll"][-1] == pytest.approx(expected, rel=1e-5)


def test_data_that_determine_no_temperature():
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(3)])
    model.compile("sgd", SPARSE)
    model.set_weights([2 * np.eye(3), np.zeros(3)])
    # No warning either: each epoch would repeat it.
    x = np.eye(3, dtype="float32")
    value, temperature = logged((x, np.arange(3)), model)
    assert 0 < value < 0.5 and 0 < temperature < 1


@pytest.mark.parametrize(
    "data, kind",
    [
        (VALIDATION[:1], "tuple"),
        (VALIDATION[0], "ndarray"),
        ("data", "str"),
        ((batch for batch in [VALIDATION]), "generator"),
        (tf.data.Dataset.from_tensors(VALIDATION).repeat(), ".*Repeat"),
    ],
)
def test_bad_validation_data(data, kind):
    with pytest.raises(ValueError, match=f"`validation_data`.*type {kind}"):
        ct.callbacks.TemperatureScaledLoss(data)


def test_what_is_seen_only_in_training(trained):
    mse = network(compiled="mse")
    with pytest.raises(ValueError, match="`from_logits` must be.*loss=<func"):
        logged(VALIDATION, mse)
    assert logged(VALIDATION, mse, from_logits=True)[0] > 0
    with pytest.raises(ValueError, match="whole arrays are passed as a tuple"):
        logged(list(VALIDATION), trained)
    with pytest.raises(ValueError, match="at least one batch"):
        logged([], trained)
    with pytest.raises(ValueError, match="`outputs`.* pass `from_logits=True`"):
        logged(VALIDATION, trained, from_logits=False)
    probabilities = with_softmax(trained, "softmax", SPARSE)
    with pytest.warns(UserWarning, match="`outputs` looks like probabilities"):
        logged(VALIDATION, probabilities)
    inputs = keras.Input([5])
    two = keras.Model(inputs, [keras.layers.Dense(3)(inputs)] * 2)
    two.compile("sgd", SPARSE)
    with pytest.raises(ValueError, match="one output. Received: 2 outputs"):
        logged(VALIDATION, two)
