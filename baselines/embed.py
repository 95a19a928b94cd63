r"""Writes the embeddings of a data set, clean and corrupted, by a Keras model.

python baselines/embed.py --model=efficientnet.keras --data=cifar10 \
      --output_dir=embeddings/cifar10 --severities=1,3,5 --num_examples=2000
python baselines/cifar/train.py --config=configs/embeddings.py \
      --config.data.name=npz:embeddings/cifar10 --primary=nll

Each set becomes a file with the arrays `x`, the embeddings, and `y`, the class
ids: train.npz, calibration.npz, test.npz, and <corruption>_<severity>.npz for
the shift benchmark, none of these with --corruptions=none. Files that are there
are not computed again: the same command goes on, also with more corruptions and
severities.
"""

import inspect
import itertools
import json
import os

import flags
import numpy as np
import shift_flags

FLAGS = flags.FLAGS
shift_flags.define()
flags.DEFINE_string(
    "model",
    None,
    "A `.keras` file of a model that takes pixels of 0 to 255, or a name of "
    "`keras.applications`, with its ImageNet weights.",
    required=True,
)
flags.DEFINE_string("data", "cifar10", "Data set; see `ct.data.get`.")
flags.DEFINE_string("output_dir", None, "Folder of embeddings.", required=True)
text = "Image size for `folder:` and `keras.applications`."
flags.DEFINE_integer("image_size", 224, text, lower_bound=1)
flags.DEFINE_integer("batch_size", 100, "Batch size.", lower_bound=1)
# What all embeddings of a folder have in common, and all corrupted ones, with
# the names of their files.
SETTINGS = {
    "clean": ("*.npz", ("model", "data", "image_size")),
    "corrupted": (
        "*_[1-5].npz",
        ("corrupted_dir", "generated", "num_examples"),
    ),
}


def main(_):
    """Writes what is not there yet."""
    import caltrain_tf as ct
    from caltrain_tf import files

    folder, batch_size = files.as_path(FLAGS.output_dir), FLAGS.batch_size
    options = {"dtype": "uint8"}
    if FLAGS.data.startswith("folder:"):  # Its images have different sizes.
        options["image_size"] = FLAGS.image_size
    data = ct.data.get(FLAGS.data, FLAGS.data_dir, **options)
    sets = {
        split: (data.eval_batches(split, batch_size), size)
        for split, size in data.num_examples.items()
    }
    if FLAGS.corruptions != ["none"]:
        shifted, *names = shift_flags.sets(data)
        size = shifted.num_examples
        size = min(FLAGS.num_examples or size, size)
        for where in itertools.product(*names):
            batches = shifted.batches(*where, batch_size)
            sets["{}_{}".format(*where)] = batches, size
    missing = [n for n in sets if not (folder / f"{n}.npz").exists()]
    settings = checked_settings(folder / "embeddings.json")
    embed = load(FLAGS.model, data.image_shape) if missing else None
    for name in missing:
        x, y = embeddings(embed, *sets[name], name)
        text = json.dumps(settings, indent=2) + "\n"
        files.write_text(folder / "embeddings.json", text)
        files.write_npz(folder / f"{name}.npz", x=x, y=y)
    print(f"{len(sets)} sets in {folder}, {len(missing)} of them new")


def checked_settings(path):
    """Returns the settings of the folder's embeddings, unless these differ."""
    from caltrain_tf import files

    settings = files.read_json(path) if path.exists() else {}
    kinds = ["clean"] if FLAGS.corruptions == ["none"] else SETTINGS
    for kind in kinds:
        pattern, names = SETTINGS[kind]
        new = {name: FLAGS[name].value for name in names}
        if kind == "clean" and os.path.exists(FLAGS.model):
            new["model"] = os.path.abspath(FLAGS.model)
        if not any(path.parent.glob(pattern)):
            settings[kind] = new
        old = settings.setdefault(kind, new)
        differing = [
            f"{name}={old.get(name)} there, {new[name]} here"
            for name in new
            if old.get(name) != new[name]
        ]
        if differing:
            raise ValueError(
                f"--output_dir={FLAGS.output_dir} holds {kind} embeddings of "
                f"other settings: {'; '.join(differing)}. Take another folder."
            )
    return settings


def load(name, shape):
    """Returns a compiled function from pixels of 0 to 255 to embeddings."""
    import keras
    import tensorflow as tf

    if name.endswith(".keras"):
        from caltrain_tf import models

        model, prepare = models.get(name, input_shape=shape), tf.identity
    else:
        modules = filter(inspect.ismodule, vars(keras.applications).values())
        module = next((m for m in modules if hasattr(m, name)), None)
        if module is None:
            raise ValueError(
                "--model must be a `.keras` file or a name of "
                f"keras.applications. Received: {name}"
            )
        model = getattr(module, name)(include_top=False, pooling="avg")

        def prepare(x):
            size = FLAGS.image_size, FLAGS.image_size
            return module.preprocess_input(tf.image.resize(x, size))

    @tf.function
    def embed(images):
        return model(prepare(tf.cast(images, "float32")), training=False)

    return embed


def embeddings(embed, batches, size, name):
    """Returns the embeddings and class ids of the first `size` examples."""
    import tqdm

    batches = batches.take(-(-size // FLAGS.batch_size))
    pairs = [
        (embed(images).numpy(), labels.numpy())
        for images, labels, _ in tqdm.tqdm(batches, name, unit="batch")
    ]
    return [np.concatenate(part)[:size] for part in zip(*pairs, strict=True)]


if __name__ == "__main__":
    flags.run(main)
