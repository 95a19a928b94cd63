import io

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from caltrain_tf.data import imagenet
from caltrain_tf.data.imagenet import JpegRecords
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
        image = imagenet.random_crop(
            encoded, 64, tf.constant([1, number])
        ).numpy()
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
        for seed in map(tf.constant, ([1, 2], [1, 2], [1, 3]))
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_very_long_images_and_small_ones_work():
    for height, width in ((1, 300), (300, 2), (1, 1), (9, 7)):
        encoded = jpeg_file(height, width, (10, 20, 30))
        for image in (
            imagenet.random_crop(encoded, 8, tf.constant([0, 0])),
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
        files.append((path, skip, take))
    return files


def labels_of(dataset):
    return [batch[1].numpy().tolist() for batch in dataset]


def train_batches(
    records, batch_size, *, epoch=0, seed=0, first_step=0, shard=(0, 1)
):
    rng = np.random.default_rng([epoch, seed])
    return records.train_batches(batch_size, rng, first_step, shard)


def train_labels(records, batch_size=4, **options):
    return labels_of(train_batches(records, batch_size, **options))


@pytest.mark.parametrize(
    "block_size, hosts", [(1, 3), (20, 1), (20, 4), (1000, 2)]
)
def test_an_epoch_has_every_example_once(files, block_size, hosts):
    records = JpegRecords(files, parse, 8, block_size)
    parts = [
        train_labels(records, 12, shard=(host, hosts)) for host in range(hosts)
    ]
    # 48 examples in files of unequal size: as many steps on every host.
    assert {np.shape(part) for part in parts} == {(4, 12 // hosts)}
    labels = np.ravel(parts)
    assert sorted(labels) == list(range(48))
    assert labels.tolist() != sorted(labels)


def test_a_host_reads_only_its_own_files(files):
    """Without one of the files, only the hosts that need it fail."""
    hosts, reads = 2, 0
    for missing in (0, 2, 5):
        rest = list(files)
        rest[missing] = ("missing.tfrecord", *files[missing][1:])
        records = JpegRecords(rest, parse, 8)
        for host in range(hosts):
            try:
                train_labels(records, 12, shard=(host, hosts))
            except tf.errors.NotFoundError:
                reads += 1
    # A file is cut in two at most where the part of a host ends.
    assert 3 <= reads <= 3 + hosts - 1


@pytest.mark.parametrize("first_step, shard", [(7, (0, 1)), (12, (1, 2))])
def test_an_epoch_can_start_at_any_step(files, first_step, shard):
    records = JpegRecords(files, parse, 8, block_size=20)
    whole = train_labels(records, epoch=3, shard=shard)
    options = {"epoch": 3, "first_step": first_step, "shard": shard}
    assert train_labels(records, **options) == whole[first_step:]


def test_what_is_skipped_is_not_decoded(files, tmp_path):
    """Every image of the first steps is damaged; only the rest is decoded."""
    records = JpegRecords(files, parse, 8)
    whole = train_labels(records)
    early = set(np.ravel(whole[:6]))
    damaged = []
    for old, skip, take in files:
        path = str(tmp_path / old.split("/")[-1])
        with tf.io.TFRecordWriter(path) as writer:
            for record in tf.data.TFRecordDataset(old):
                record = record.numpy()
                bad = int(record[:3]) in early
                writer.write(record[:3] + b"no JPEG" if bad else record)
        damaged.append((path, skip, take))
    records = JpegRecords(damaged, parse, 8)
    assert train_labels(records, first_step=6) == whole[6:]
    with pytest.raises(tf.errors.InvalidArgumentError):
        train_labels(records, first_step=5)


def test_what_does_not_fill_a_batch_is_left_out(files):
    records = JpegRecords(files, parse, 8)
    left_out = []
    for epoch in range(3):
        batches = train_labels(records, 10, epoch=epoch)
        assert [len(batch) for batch in batches] == [10] * 4
        left_out.append(frozenset(range(48)) - set(np.ravel(batches)))
    assert {len(labels) for labels in left_out} == {8}
    assert len(set(left_out)) > 1


def test_epochs_and_seeds_differ_and_repeat(files):
    records = JpegRecords(files, parse, 8, block_size=20)
    runs = [
        train_labels(records, epoch=e, seed=s)
        for e, s in ((0, 0), (0, 1), (1, 1))
    ]
    assert len({str(run) for run in runs}) == 3
    again = JpegRecords(files, parse, 8, block_size=20)
    tf.random.set_seed(5)
    assert train_labels(again, epoch=1, seed=1) == runs[-1]


def test_crops_do_not_depend_on_the_hosts(files, monkeypatch):
    records = JpegRecords(files, parse, 8)

    def seeds(hosts):
        """The seed of each example's crop, which this test draws instead."""
        monkeypatch.setattr(
            imagenet,
            "random_crop",
            lambda encoded, size, seed: tf.ensure_shape(
                tf.tile(seed[:, None, None], [1, 8, 3]), [2, 8, 3]
            ),
        )
        found = {}
        for host in range(hosts):
            for images, labels in train_batches(
                records, 12, shard=(host, hosts)
            ):
                for image, label in zip(images, labels, strict=True):
                    found[int(label)] = tuple(image[:, 0, 0].numpy())
        return found

    one = seeds(1)
    assert one == seeds(3) and len(set(one.values())) == 48


@pytest.mark.parametrize("hosts", [1, 2, 5])
def test_evaluation_has_every_example_once(files, hosts):
    records = JpegRecords(files, parse, 8)
    parts = [
        list(records.eval_batches(10, (host, hosts))) for host in range(hosts)
    ]
    assert {len(part) for part in parts} == {5}
    batches = [batch for part in parts for batch in part]
    assert {batch[0].shape for batch in batches} == {(10 // hosts, 8, 8, 3)}
    places = np.concatenate([batch[2] for batch in batches])
    labels = np.concatenate([batch[1] for batch in batches])
    assert sorted(places) == [*range(48), 48, 48]
    # The place is that of the example in the split, on any number of hosts.
    np.testing.assert_array_equal(labels[places < 48], places[places < 48])


def test_the_order_of_evaluation_is_that_of_tensorflow_datasets(files):
    whole = JpegRecords(files, parse, 8).eval_batches(48, (0, 1))
    columns = tuple(map(np.array, zip(*files, strict=True)))
    expected = (
        tf.data.Dataset.from_tensor_slices(columns)
        .interleave(
            lambda path, skip, take: (
                tf.data.TFRecordDataset(path).skip(skip).take(take)
            ),
            cycle_length=16,
            block_length=16,
        )
        .map(lambda record: parse(record)[1])
    )
    assert labels_of(whole)[0] == [int(label) for label in expected]
