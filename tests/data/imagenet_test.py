import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from caltrain_tf.data import imagenet
from caltrain_tf.data.imagenet import File, JpegRecords
from tests.data.conftest import jpeg_file

# The examples of each file; of two files not all are used.
TAKES = (7, 5, 9, 6, 8, 3, 10)


def gradient_file(height, width):
    """A JPEG whose red tells the row and whose green tells the column."""
    rows, columns = np.mgrid[:height, :width]
    pixels = np.stack(
        [rows * 255 / height, columns * 255 / width, 0 * rows], axis=-1
    )
    buffer = io.BytesIO()
    image = Image.fromarray(pixels.round().astype(np.uint8))
    image.save(buffer, "JPEG", quality=100, subsampling=0)
    return buffer.getvalue()


def corners(image):
    """The shares of height and width that an image spans, from its pixels."""
    red, green = image[..., 0] / 255.0, image[..., 1] / 255.0
    return (
        red[0].mean(),
        red[-1].mean(),
        green[:, 0].mean(),
        green[:, -1].mean(),
    )


def test_central_crop_is_seven_eighths_of_the_shorter_side():
    image = imagenet.central_crop(gradient_file(240, 480), 210).numpy()
    assert image.shape == (210, 210, 3) and image.dtype == np.uint8
    top, bottom, left, right = corners(image)
    # JPEG loses up to 0.011; the whole of the shorter side would be 0.06 off.
    assert (top, bottom) == pytest.approx((15 / 240, 225 / 240), abs=0.03)
    assert (left, right) == pytest.approx((135 / 480, 345 / 480), abs=0.03)


def test_random_crops_have_the_standard_areas_and_ratios():
    encoded = gradient_file(200, 200)
    areas, ratios, mirrored = [], [], []
    for number in range(100):
        image = imagenet.random_crop(encoded, 64, [1, number]).numpy()
        assert image.shape == (64, 64, 3)
        top, bottom, left, right = corners(image)
        # The outermost pixels' centres are 63/64 of the crop apart.
        height, width = bottom - top, abs(right - left)
        areas.append(height * width)
        ratios.append(width / height)
        mirrored.append(right < left)
    assert 0.06 < min(areas) < 0.12 and max(areas) > 0.8
    assert min(ratios) > 0.7 and max(ratios) < 1.43
    assert 30 < sum(mirrored) < 70


def test_a_seed_decides():
    encoded = gradient_file(50, 60)
    first, again, other = (
        imagenet.random_crop(encoded, 16, seed).numpy()
        for seed in ([1, 2], [1, 2], [1, 3])
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_very_long_images_and_small_ones_work():
    for height, width in ((1, 300), (300, 2), (1, 1), (9, 7)):
        encoded = jpeg_file(height, width, (10, 20, 30))
        for image in (
            imagenet.random_crop(encoded, 8, [0, 0]),
            imagenet.central_crop(encoded, 8),
        ):
            assert image.shape == (8, 8, 3)
            assert np.abs(image.numpy() - [10.0, 20.0, 30.0]).max() < 6


def test_grey_files_get_three_channels():
    buffer = io.BytesIO()
    Image.new("L", (20, 20), 77).save(buffer, "JPEG")
    image = imagenet.central_crop(tf.constant(buffer.getvalue()), 10)
    assert image.shape == (10, 10, 3)
    assert (image.numpy() == 77).all()


def parse(record):
    """Records are a label in three digits, then the image."""
    label = tf.strings.to_number(tf.strings.substr(record, 0, 3), tf.int64)
    return tf.strings.substr(record, 3, -1), label


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    image = jpeg_file(12, 16, (50, 60, 70))
    files, label = [], 0
    for number, take in enumerate(TAKES):
        skip = 2 if number in (0, 3) else 0
        path = str(folder / f"{number}.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for _ in range(skip):
                writer.write(b"999" + image)
            for _ in range(take):
                writer.write(b"%03d" % label + image)
                label += 1
        files.append(File(path, skip, take))
    return files


def labels_of(dataset):
    return [batch[1].numpy().tolist() for batch in dataset]


def train_labels(records, batch_size=4, shard=None, **options):
    options = {"epoch": 0, "seed": 0, "first_step": 0, **options}
    rows = shard or range(batch_size)
    return labels_of(records.train_batches(batch_size, rows=rows, **options))


@pytest.mark.parametrize("block_size", [20, 1000])
def test_an_epoch_holds_every_example_once(files, block_size):
    records = JpegRecords(files, parse, size=8, block_size=block_size)
    labels = np.ravel(train_labels(records))
    assert sorted(labels) == sorted(set(labels))
    assert len(labels) == 48 and max(labels) < 48
    assert labels.tolist() != sorted(labels)


@pytest.mark.parametrize("block_size, first_step", [(1, 7), (20, 1), (20, 12)])
def test_an_epoch_can_start_at_any_step(files, block_size, first_step):
    records = JpegRecords(files, parse, size=8, block_size=block_size)
    whole = train_labels(records, epoch=3)
    rest = train_labels(records, epoch=3, first_step=first_step)
    assert rest == whole[first_step:]


def test_what_does_not_fill_a_batch_is_left_out(files):
    records = JpegRecords(files, parse, size=8)
    batches = train_labels(records, batch_size=10)
    assert [len(batch) for batch in batches] == [10] * 4


def test_epochs_and_seeds_differ_and_repeat(files):
    records = JpegRecords(files, parse, size=8, block_size=20)
    runs = [
        train_labels(records, epoch=e, seed=s) for e in (0, 1) for s in (0, 1)
    ]
    assert len({str(run) for run in runs}) == 4
    again = JpegRecords(files, parse, size=8, block_size=20)
    tf.random.set_seed(5)
    assert train_labels(again, epoch=1, seed=1) == runs[-1]


def test_shards_make_up_the_global_batch(files):
    records = JpegRecords(files, parse, size=8, block_size=20)
    whole = records.train_batches(
        6, epoch=0, seed=0, first_step=2, rows=range(6)
    )
    halves = [
        records.train_batches(6, epoch=0, seed=0, first_step=2, rows=rows)
        for rows in (range(3), range(3, 6))
    ]
    for batch, first, second in zip(whole, *halves, strict=True):
        for column in range(2):
            np.testing.assert_array_equal(
                batch[column],
                np.concatenate([first[column], second[column]]),
            )


def test_evaluation_goes_through_all_in_order_and_fills_up(files):
    records = JpegRecords(files, parse, size=8)
    batches = list(records.eval_batches(10, rows=range(10)))
    places = np.concatenate([batch[2] for batch in batches])
    labels = np.concatenate([batch[1] for batch in batches])
    assert places.tolist() == list(range(50))
    assert sorted(labels[:48]) == list(range(48))
    assert batches[0][0].shape == (10, 8, 8, 3)
    again = np.ravel(labels_of(records.eval_batches(10, rows=range(10))))
    np.testing.assert_array_equal(labels, again)
