"""Each step against a plain version of it, or another library's."""

import io

import matplotlib.colors
import numpy as np
import pytest
import scipy.ndimage
import tensorflow as tf
from PIL import Image

from caltrain_tf.data.corruptions import blur, core, digital, weather
from caltrain_tf.data.corruptions.core import Draws
from tests.data.corruptions import cases


@pytest.fixture
def images():
    pixels = np.moveaxis(cases.photographs()[:3], -1, 1)
    return np.ascontiguousarray(pixels).astype(np.float32) / 255


def draws():
    return Draws([5, 0, 123], 1)


@pytest.mark.parametrize("sigma", [0.4, 1.0, 6.4, 20.0])
@pytest.mark.parametrize("border", ["edge", "symmetric", "reflect"])
def test_gaussian_blur_is_that_of_scipy(images, sigma, border):
    mode = {"edge": "nearest", "symmetric": "reflect", "reflect": "mirror"}
    matrix = core.blur_matrix(32, sigma, border=border)
    expected = scipy.ndimage.gaussian_filter(
        images, [0, 0, sigma, sigma], mode=mode[border]
    )
    np.testing.assert_allclose(
        core.transform(images, matrix), expected, atol=1e-5
    )


@pytest.mark.parametrize("factor", [1.0, 1.05, 1.25, 1.75, 2.25, 4.5])
@pytest.mark.parametrize("size", [32, 37])
def test_zoom_is_that_of_scipy(factor, size):
    image = np.random.RandomState(0).rand(size, size)
    kept = int(np.ceil(size / factor))
    top = (size - kept) // 2
    enlarged = scipy.ndimage.zoom(
        image[top : top + kept, top : top + kept], factor, order=1
    )
    cut = (len(enlarged) - size) // 2
    matrix = core.zoom_matrix(size, factor)
    np.testing.assert_allclose(
        matrix @ image @ matrix.T,
        enlarged[cut : cut + size, cut : cut + size],
        atol=1e-12,
    )


def test_zoom_blur_is_the_mean_of_zooms(images):
    zooms = [np.eye(32)]
    zooms += [core.zoom_matrix(32, f) for f in np.arange(1, 1.06, 0.01)]
    expected = np.mean(
        [np.einsum("hi,bcij,wj->bchw", m, images, m) for m in zooms], axis=0
    )
    blurred = blur.zoom_blur(images, None, 1.06, 0.01)
    np.testing.assert_allclose(blurred, expected, atol=1e-5)


@pytest.mark.parametrize(
    "radius, softness",
    [(0.3, 0.4), (1, 0.2), (1.5, 0.1), (3, 0.1), (8, 0.5), (10, 0.5)],
)
def test_defocus_blur_is_a_soft_disk(images, radius, softness):
    grid = np.arange(-12, 13)
    disk = (grid[:, None] ** 2 + grid**2 <= radius**2).astype(float)
    taps = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    soft = np.exp(-0.5 * (taps / softness) ** 2)
    soft /= soft.sum()
    kernel = scipy.ndimage.convolve(
        disk / disk.sum(), np.outer(soft, soft), mode="constant"
    )
    expected = scipy.ndimage.correlate(
        images, kernel[np.newaxis, np.newaxis], mode="mirror"
    )
    blurred = blur.defocus_blur(images, None, radius, softness)
    np.testing.assert_allclose(blurred, expected, atol=1e-5)


@pytest.mark.parametrize("factor", [0.95, 0.65, 0.25])
def test_pixelate_is_that_of_pillow(images, factor):
    pixelated = digital.pixelate(images, None, factor)
    for image, ours in zip(images, pixelated, strict=True):
        theirs = np.moveaxis(np.uint8(np.round(image * 255)), 0, -1)
        theirs = Image.fromarray(theirs)
        small = int(32 * factor)
        theirs = theirs.resize((small, small), Image.BOX)
        theirs = np.asarray(theirs.resize((32, 32), Image.BOX))
        ours = np.moveaxis(ours, 0, -1)
        np.testing.assert_allclose(np.round(ours * 255), theirs)


def test_jpeg_is_that_of_pillow():
    pixels = cases.photographs()[:3]
    compressed = digital.jpeg_compression(pixels, None, 40)
    for image, ours in zip(pixels, compressed, strict=True):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "JPEG", quality=40)
        gap = np.abs(ours.astype(float) - np.asarray(Image.open(file)))
        # Releases of the JPEG library differ by a level here and there.
        assert gap.mean() < 0.5


def changed_in_hsv(images, channel, factor, offset):
    hsv = matplotlib.colors.rgb_to_hsv(images)
    hsv[..., channel] = np.clip(hsv[..., channel] * factor + offset, 0, 1)
    return matplotlib.colors.hsv_to_rgb(hsv)


def test_saturation_is_that_of_hue_saturation_and_value(images):
    images[0, :, 0] = 0.0
    images[0, :, 1] = 0.4
    changed = digital.saturate(images, None, 2.5, 0.2)
    expected = changed_in_hsv(np.moveaxis(images, 1, -1), 1, 2.5, 0.2)
    np.testing.assert_allclose(np.moveaxis(changed, 1, -1), expected, atol=1e-5)


@pytest.mark.parametrize("amount", [0.05, 0.3])
def test_brightness_is_the_value_of_hue_saturation_and_value(amount):
    pixels = cases.photographs()[:3].copy()
    pixels[0, 0] = 0
    pixels[0, 1] = 100
    pixels[0, 2] = (0, 255, 7)
    changed = weather.brightness(pixels, None, amount)
    expected = changed_in_hsv(pixels / 255, 2, 1, amount) * 255
    # The level below, with float32's errors where that is at stake.
    assert (changed <= expected + 1e-3).all()
    assert (changed > expected - 1 - 1e-3).all()


def test_contrast_draws_channels_to_their_means(images):
    images = np.moveaxis(images, 1, -1).copy()
    changed = digital.contrast(images, None, 0.4)
    means = images.mean(axis=(1, 2), keepdims=True, dtype=float)
    expected = 0.4 * images + 0.6 * means
    np.testing.assert_allclose(changed, expected, atol=1e-6)


@pytest.mark.parametrize("size, reach", [(32, 1), (32, 2), (24, 4)])
def test_glass_blur_visits_pixels_from_the_last_to_the_first(size, reach):
    visited = size - 2 * reach
    offsets = draws().integers([2, visited, visited], -reach, reach - 1)
    sources = blur._sources(offsets, size)
    for row, (down, right) in zip(sources, offsets, strict=True):
        pixels = np.arange(size * size).reshape(size, size)
        for y in range(size - reach, reach, -1):
            for x in range(size - reach, reach, -1):
                move = (y - reach - 1, x - reach - 1)
                pixels[y, x] = pixels[y + down[move], x + right[move]]
        np.testing.assert_array_equal(row, pixels.ravel())


def test_a_streak_is_a_weighted_sum_along_a_line(images):
    angles = np.array([-40.0, 10.0, -120.0], np.float32)
    blurred = blur.streak(np.moveaxis(images, 1, -1).copy(), angles, 3, 1.5)
    blurred = np.moveaxis(blurred, -1, 1)
    weights = np.exp(-0.5 * (np.arange(7) / 1.5) ** 2)
    weights /= weights.sum()
    for image, angle, ours in zip(images, angles, blurred, strict=True):
        expected = np.zeros_like(image)
        for y, x in np.ndindex(32, 32):
            for tap, weight in enumerate(weights):
                down = np.ceil(tap * np.sin(np.radians(angle)) - 0.5)
                right = np.ceil(tap * np.cos(np.radians(angle)) - 0.5)
                at = np.clip([y + down, x + right], 0, 31).astype(int)
                expected[:, y, x] += weight * image[:, at[0], at[1]]
        assert np.abs(ours - expected).max() < 0.501 / 255


def test_plasma_is_made_of_squares_and_diamonds():
    size, decay = 16, 2.0
    noise = draws().uniform([size * size - 1], -1.0, 1.0)[2]
    grid = np.zeros((size, size))
    step, amplitude, start = size, 1e4, 0
    while step > 1:
        half, count = step // 2, size // step
        for down, right in ((half, half), (0, half), (half, 0)):
            part = noise[start : start + count**2].reshape(count, count)
            start += count**2
            for i, j in np.ndindex(count, count):
                y, x = i * step + down, j * step + right
                corners = (
                    [(-half, -half), (-half, half), (half, -half), (half, half)]
                    if down == right
                    else [(-half, 0), (half, 0), (0, -half), (0, half)]
                )
                near = [
                    grid[(y + a) % size, (x + b) % size] for a, b in corners
                ]
                grid[y, x] = np.mean(near) + amplitude * part[i, j]
        step, amplitude = half, amplitude / decay**2
    expected = (grid - grid.min()) / (grid.max() - grid.min())
    ours = weather._plasma(draws(), size, decay)[2]
    np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.parametrize("border", ["symmetric", "reflect"])
def test_warps_read_between_pixels_as_scipy_does(images, border):
    rng = np.random.RandomState(0)
    rows, columns = rng.uniform(-20, 50, (2, 3, 32, 32)).astype(np.float32)
    ours = digital._sample(images, rows, columns, border)
    mode = {"symmetric": "reflect", "reflect": "mirror"}[border]
    for index, channel in np.ndindex(3, 3):
        expected = scipy.ndimage.map_coordinates(
            images[index, channel],
            [rows[index], columns[index]],
            order=1,
            mode=mode,
        )
        np.testing.assert_allclose(ours[index, channel], expected, atol=1e-5)


def test_the_affine_map_takes_the_corners_along():
    moves = draws().uniform([3, 2], -2.56, 2.56)
    rows, columns = digital._affine(moves, 32)
    corners = np.array([[26, 26], [26, 6], [6, 6]])
    for index in range(3):
        for corner, move in zip(corners, moves[index], strict=True):
            x, y = corner + move
            sources = [
                scipy.ndimage.map_coordinates(plane[index], [[y], [x]], order=1)
                for plane in (columns, rows)
            ]
            np.testing.assert_allclose(np.ravel(sources), corner, atol=1e-3)


def test_distances_are_those_to_the_edges_of_a_square():
    image = np.zeros((1, 40, 40, 1), np.float32)
    image[:, 10:30, 10:30] = 200
    found = weather.find_edges(image, 50, 150).numpy()[0, ..., 0]
    # One pixel wide, around the square, and nowhere else.
    inside = np.zeros((40, 40), bool)
    inside[9:31, 9:31] = True
    inside[11:29, 11:29] = False
    assert found.any() and not (found & ~inside).any()
    assert (found[20] > 0).sum() == 2 and (found[:, 20] > 0).sum() == 2
    distance = weather.distance_to_edges(image, 50, 150).numpy()[0, ..., 0]
    exact = scipy.ndimage.distance_transform_edt(~found)
    # A chamfer of 5 x 5 is up to 2% off on any machine.
    np.testing.assert_allclose(
        np.minimum(distance, 20), np.minimum(exact, 20), rtol=0.03
    )
    flat = weather.distance_to_edges(np.zeros_like(image), 50, 150)
    assert (flat.numpy() > 20).all()


def plain_edges(image, low, high):
    sobel = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    across = scipy.ndimage.correlate(image, sobel, mode="nearest")
    down = scipy.ndimage.correlate(image, sobel.T, mode="nearest")
    strength = np.abs(across) + np.abs(down)
    around = np.pad(strength, 1)
    thin = np.zeros(image.shape, bool)
    for row, column in np.ndindex(image.shape):
        x, y = across[row, column], down[row, column]
        angle = np.degrees(np.arctan2(abs(y), abs(x)))
        step = (1, 1 if x * y >= 0 else -1)
        if angle < 22.5:
            step = (0, 1)
        elif angle > 67.5:
            step = (1, 0)
        here = np.array([row, column]) + 1
        before, after = around[tuple(here - step)], around[tuple(here + step)]
        is_diagonal = 0 not in step
        thin[row, column] = strength[row, column] > before and (
            strength[row, column] > after
            or (strength[row, column] == after and not is_diagonal)
        )
    lines, _ = scipy.ndimage.label(thin & (strength > low), np.ones((3, 3)))
    kept = np.unique(lines[thin & (strength > high)])
    return np.isin(lines, kept[kept > 0])


def test_edges_are_those_of_a_plain_version():
    noise = np.random.RandomState(0).normal(0.65, 0.3, (4, 48, 48))
    depth = scipy.ndimage.gaussian_filter(noise, [0, 2, 2])
    depth[depth < 0.68] = 0
    images = np.floor(depth * 255)
    found = weather.find_edges(np.float32(images[..., np.newaxis]), 50, 150)
    expected = [plain_edges(image, 50, 150) for image in images]
    assert np.sum(expected) > 300
    np.testing.assert_array_equal(found.numpy()[..., 0], expected)


def test_whole_means_stay_whole():
    images = np.zeros((21, 6, 6, 1), np.float32)
    images += np.arange(21).reshape(-1, 1, 1, 1)
    np.testing.assert_array_equal(weather._whole_means(images), images)
    images[:, 2, 2] += 8.9
    images[0] = 0
    np.testing.assert_array_equal(
        weather._whole_means(images),
        np.floor(images[:, :1, :1] + np.zeros((6, 6, 1))),
    )


def test_levels_are_spread_evenly():
    rng = np.random.RandomState(0)
    levels = rng.choice(
        [3, 4, 10, 20], size=(2, 8, 8, 1), p=[0.4, 0.3, 0.2, 0.1]
    )
    levels[1] = 7
    even = weather._equalize(tf.constant(levels, tf.float32)).numpy()
    counts = [(levels[0] == level).sum() for level in (3, 4, 10, 20)]
    share = np.cumsum([0, *counts[1:]]) / sum(counts[1:])
    for level, expected in zip((3, 4, 10, 20), share, strict=True):
        np.testing.assert_allclose(
            even[0][levels[0] == level], np.round(255 * expected)
        )
    np.testing.assert_array_equal(even[1], 7)
