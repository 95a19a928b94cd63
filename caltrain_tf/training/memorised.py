"""The paper's rule of thumb for when to train interleaved."""

import warnings


def warn_if_memorised(train_ece, test_ece, threshold=0.01, ratio=5.0):
    """Warns where a network has learnt its training set's calibration by heart.

    A calibration loss on such a training set has nothing to do, and the paper
    advises interleaved training where the train ECE is suspiciously low, for
    example below 1%. In its table this happened for NLL on CIFAR-100 (train
    0.45%, test 15 times as much) and CIFAR-10 (0.05%, 50 times), while the
    other losses had a test ECE of at most 1.4 times the train ECE.

    Args:
        train_ece: Expected calibration error on the training set, in [0, 1].
        test_ece: The same on data that were not trained on.
        threshold: Below which the train ECE is suspicious.
        ratio: How many times as much the test ECE has to be.

    Returns:
        Whether it warned.

    Example:
        >>> import caltrain_tf as ct
        >>> ct.training.warn_if_memorised(train_ece=0.0249, test_ece=0.0351)
        False

    Reference:
        Karandikar et al., "Soft Calibration Objectives for Neural Networks",
        2021, appendix B.
    """
    for name, value in (("train_ece", train_ece), ("test_ece", test_ece)):
        if not 0 <= value <= 1:
            raise ValueError(
                f"`{name}` must be in [0, 1], not in percent. "
                f"Received: {name}={value}"
            )
    memorised = train_ece < threshold and test_ece > ratio * train_ece
    if memorised:
        warnings.warn(
            f"The train ECE ({train_ece:.2%}) is below {threshold:.0%} while "
            f"the test ECE ({test_ece:.2%}) is far above it: the training set "
            "is memorised, and a calibration loss on it has nothing to do. "
            "Train interleaved, or take another primary loss, such as focal.",
            stacklevel=2,
        )
    return memorised
