r"""Writes the embeddings of a data set, clean and corrupted, by a Keras model.

python baselines/embed.py --model=efficientnet.keras --data=cifar10 \
      --output_dir=embeddings/cifar10 --severities=1,3,5 --num_examples=2000
python baselines/cifar/train.py --config=configs/embeddings.py \
      --config.data.name=npz:embeddings/cifar10 --primary=nll

Each set becomes a file with the arrays `x`, the embeddings, and `y`, the class
ids: train.npz, calibration.npz, test.npz, and <corruption>_<severity>.npz for
the shift benchmark. Files that are there are not computed again.
"""

import inspect
import io
import itertools

import flags
import numpy as np

MODEL = flags.DEFINE_string(
    "model",
    None,
    "A `.keras` file of a model that takes pixels of 0 to 255, or a name of "
    "`keras.applications`, with its ImageNet weights.",
    required=True,
)
DATA = flags.DEFINE_string("data", "cifar10", "Data set; see `ct.data.get`.")
flags.define("data_dir")
OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the embeddings.", required=True
)
IMAGE_SIZE = flags.DEFINE_integer(
    "image_size",
    224,
    "Size to which images are enlarged for a model of `keras.applications`.",
)
CORRUPTED_DIR = flags.DEFINE_string(
    "corrupted_dir", None, "Folder of published corrupted sets."
)
CORRUPTIONS = flags.DEFINE_list(
    "corruptions", None, "Corruptions; all 15 by default, `none` for none."
)
flags.define_integers("severities", "1,2,3,4,5", "Severities.")
NUM_EXAMPLES = flags.DEFINE_integer(
    "num_examples", None, "Number of examples of each corrupted set."
)
GENERATED = flags.DEFINE_bool(
    "generated",
    False,
    "Whether to generate the corrupted sets instead of reading published ones.",
)
BATCH_SIZE = flags.DEFINE_integer("batch_size", 100, "Batch size.")


def main(_):
    """Writes what is not there yet."""
    import caltrain_tf as ct
    from caltrain_tf import files

    folder = files.as_path(OUTPUT_DIR.value)
    data_dir, severities = flags.FLAGS.data_dir, flags.FLAGS.severities
    data = ct.data.get(DATA.value, data_dir, dtype="uint8")
    sets = {
        split: (data.eval_batches(split, BATCH_SIZE.value), size)
        for split, size in data.num_examples.items()
    }
    names = CORRUPTIONS.value or ct.data.corruptions.NAMES
    if names != ["none"]:
        shifted = ct.data.shifted_sets(
            data,
            corrupted_dir=CORRUPTED_DIR.value,
            data_dir=data_dir,
            generated=GENERATED.value,
            names=names,
            severities=severities,
        )
        most = shifted.num_examples
        for name, severity in itertools.product(names, severities):
            sets[f"{name}_{severity}"] = (
                shifted.batches(name, severity, BATCH_SIZE.value),
                min(NUM_EXAMPLES.value or most, most),
            )
    missing = [n for n in sets if not (folder / f"{n}.npz").exists()]
    embed = load(MODEL.value) if missing else None
    for name in missing:
        content = io.BytesIO()
        x, y = embeddings(embed, *sets[name], name)
        np.savez(content, x=x, y=y)
        files.write_bytes(folder / f"{name}.npz", content.getvalue())
    print(f"{len(sets)} sets in {folder}, {len(missing)} of them new")


def load(name):
    """Returns a compiled function from pixels of 0 to 255 to embeddings."""
    import keras
    import tensorflow as tf

    if name.endswith(".keras"):
        from caltrain_tf import models

        model, prepare = models.load(name), tf.identity
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
            size = IMAGE_SIZE.value, IMAGE_SIZE.value
            return module.preprocess_input(tf.image.resize(x, size))

    @tf.function
    def embed(images):
        return model(prepare(tf.cast(images, "float32")), training=False)

    return embed


def embeddings(embed, batches, size, name):
    """Returns the embeddings and class ids of the first `size` examples."""
    import tqdm

    x, y = [], []
    with tqdm.tqdm(total=size, desc=name, unit="images") as progress:
        for images, labels, weight in batches:
            if progress.n >= size:
                break
            count = min(int(np.sum(weight)), size - progress.n)
            x.append(embed(images).numpy()[:count])
            y.append(labels.numpy()[:count])
            progress.update(count)
    return np.concatenate(x), np.concatenate(y)


if __name__ == "__main__":
    flags.run(main)
