"""Flags of the scripts that read, or generate, corrupted sets."""

import flags

FLAGS = flags.FLAGS
flags.disclaim_key_flags()


def define():
    """Defines the flags."""
    flags.define("data_dir")
    flags.DEFINE_string(
        "corrupted_dir",
        None,
        "Folder of CIFAR-10-C or CIFAR-100-C (<corruption>.npy, labels.npy) or "
        "ImageNet-C (<corruption>/<severity>/<class>/*.JPEG).",
    )
    flags.DEFINE_bool("generated", False, "Generate corrupted sets; read none.")
    flags.DEFINE_list("corruptions", None, "Corruptions; all 15 by default.")
    flags.define_integers("severities", "1,2,3,4,5", "Severities, 1 to 5.")
    text = "Number of first examples of each corrupted set."
    flags.DEFINE_integer("num_examples", None, text, lower_bound=1)


def sets(data):
    """Returns the corrupted sets of the flags, their names and severities."""
    from caltrain_tf.data import corruptions, shifted_sets

    names = FLAGS.corruptions or corruptions.NAMES
    found = shifted_sets(
        data,
        corrupted_dir=FLAGS.corrupted_dir,
        data_dir=FLAGS.data_dir,
        generated=FLAGS.generated,
        names=names,
        severities=FLAGS.severities,
    )
    return found, names, FLAGS.severities
