"""Each step against a plain version of it, or another library's."""

import io

import matplotlib.colors
import numpy as np
import pytest
import scipy.ndimage
from PIL import Image

from caltrain_tf.data.corruptions import blur, core, digital, weather
from tests.data.corruptions import cases


@pytest.fixture
def image():
    return cases.photographs()[1] / 255


def rng():
    return np.random.default_rng(5)


@pytest.mark.parametrize(
    "factor, size", [(1.0, 32), (1.05, 37), (2.25, 32), (4.5, 37)]
)
def test_zoom_is_that_of_scipy(factor, size):
    image = rng().random((size, size))
    kept = int(np.ceil(size / factor))
    top = (size - kept) // 2
    enlarged = scipy.ndimage.zoom(
        image[top : top + kept, top : top + kept], factor, order=1
    )
    cut = (len(enlarged) - size) // 2
    matrix = blur.zoom_matrix(size, factor)
    np.testing.assert_allclose(
        matrix @ image @ matrix.T,
        enlarged[cut : cut + size, cut : cut + size],
        atol=1e-12,
    )


def test_zoom_blur_is_the_mean_of_zooms(image):
    zooms = [np.eye(32)]
    zooms += [blur.zoom_matrix(32, f) for f in np.arange(1, 1.06, 0.01)]
    expected = np.mean(
        [np.einsum("hi,ijc,wj->hwc", m, image, m) for m in zooms], axis=0
    )
    blurred = blur.zoom_blur(image, None, 1.06, 1)
    np.testing.assert_allclose(blurred, expected, atol=1e-12)


@pytest.mark.parametrize(
    "radius, softness",
    [(0.3, 0.4), (1, 0.2), (1.5, 0.1), (3, 0.1), (8, 0.5), (10, 0.5)],
)
def test_defocus_blur_is_a_soft_disk(image, radius, softness):
    grid = np.arange(-12, 13)
    disk = (grid[:, None] ** 2 + grid**2 <= radius**2).astype(float)
    taps = np.arange(-1, 2) if radius <= 8 else np.arange(-2, 3)
    soft = np.exp(-0.5 * (taps / softness) ** 2)
    soft /= soft.sum()
    kernel = scipy.ndimage.convolve(
        disk / disk.sum(), np.outer(soft, soft), mode="constant"
    )
    expected = scipy.ndimage.correlate(
        image, kernel[..., np.newaxis], mode="mirror"
    )
    # The kernel is float32.
    blurred = blur.defocus_blur(image, None, radius, softness)
    np.testing.assert_allclose(blurred, expected, atol=1e-6)


@pytest.mark.parametrize("factor", [0.95, 0.65, 0.25])
def test_pixelate_copies_the_means_of_boxes(image, factor):
    small = int(32 * factor)
    scale = 32 / small
    centres = np.arange(32) + 0.5
    rows = []
    for middle in (np.arange(small) + 0.5) * scale:
        inside = np.abs(centres - middle) <= scale / 2
        rows.append(inside / inside.sum())
    shrink = np.array(rows)
    # Pillow rounds after each direction, by at most half a level.
    means = np.einsum("hi,ijc,wj->hwc", shrink, image, shrink)
    nearest = (centres / scale).astype(int)
    expected = means[nearest][:, nearest]
    pixelated = digital.pixelate(image, None, factor)
    assert np.abs(pixelated - expected).max() < 1.01 / 255


def test_jpeg_is_that_of_pillow():
    pixels = cases.photographs()[1]
    compressed = digital.jpeg_compression(pixels / 255, None, 40)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=40)
    theirs = np.asarray(Image.open(file))
    np.testing.assert_array_equal(core.to_pixels(compressed), theirs)


@pytest.mark.parametrize("amount", [0.05, 0.3])
def test_brightness_is_the_value_of_hue_saturation_and_value(image, amount):
    image[0] = 0
    image[1] = 0.4
    image[2] = (0, 1, 7 / 255)
    changed = weather.brightness(image, None, amount)
    hsv = matplotlib.colors.rgb_to_hsv(image)
    hsv[..., 2] = np.clip(hsv[..., 2] + amount, 0, 1)
    expected = matplotlib.colors.hsv_to_rgb(hsv)
    np.testing.assert_allclose(changed, expected, atol=1e-12)


def test_contrast_draws_channels_to_their_means(image):
    changed = digital.contrast(image, None, 0.4)
    expected = 0.4 * image + 0.6 * image.mean(axis=(0, 1))
    np.testing.assert_allclose(changed, expected, atol=1e-12)


@pytest.mark.parametrize("size, reach", [(32, 1), (32, 2), (24, 4)])
def test_glass_blur_visits_pixels_from_the_last_to_the_first(size, reach):
    visited = size - 2 * reach
    down, right = rng().integers(-reach, reach, (2, visited, visited))
    pixels = np.arange(size * size).reshape(size, size)
    for y in range(size - reach, reach, -1):
        for x in range(size - reach, reach, -1):
            move = (y - reach - 1, x - reach - 1)
            pixels[y, x] = pixels[y + down[move], x + right[move]]
    sources = blur.glass_sources(np.stack([down, right]), size)
    np.testing.assert_array_equal(sources, pixels.ravel())


@pytest.mark.parametrize("angle", [-40.0, 10.0, -120.0])
def test_a_streak_is_a_weighted_sum_along_a_line(image, angle):
    weights = np.exp(-0.5 * (np.arange(7) / 1.5) ** 2)
    weights /= weights.sum()
    expected = np.zeros_like(image)
    for y, x in np.ndindex(32, 32):
        for tap, weight in enumerate(weights):
            down = np.ceil(tap * np.sin(np.radians(angle)) - 0.5)
            right = np.ceil(tap * np.cos(np.radians(angle)) - 0.5)
            at = np.clip([y + down, x + right], 0, 31).astype(int)
            expected[y, x] += weight * image[at[0], at[1]]
    blurred = blur.streak(image, angle, 3, 1.5)
    assert np.abs(blurred - expected).max() < 0.501 / 255


def test_plasma_is_made_of_squares_and_diamonds():
    size, decay = 16, 2.0
    draws = rng()
    grid = np.zeros((size, size))
    step, amplitude = size, 1e4
    while step > 1:
        half, count = step // 2, size // step
        noise = draws.uniform(-amplitude, amplitude, (2 * count, 2 * count))
        for down, right in ((half, half), (0, half), (half, 0)):
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
                grid[y, x] = np.mean(near) + noise[y // half, x // half]
        step, amplitude = half, amplitude / decay**2
    expected = (grid - grid.min()) / (grid.max() - grid.min())
    np.testing.assert_allclose(
        weather.plasma(rng(), size, decay), expected, atol=1e-12
    )


def test_the_affine_map_takes_the_corners_along():
    moves = rng().uniform(-2.56, 2.56, (3, 2))
    rows, columns = digital.affine(moves, 32)
    corners = np.array([[26, 26], [26, 6], [6, 6]])
    for corner, move in zip(corners, moves, strict=True):
        x, y = corner + move
        sources = [
            scipy.ndimage.map_coordinates(plane, [[y], [x]], order=1)
            for plane in (columns, rows)
        ]
        np.testing.assert_allclose(np.ravel(sources), corner, atol=1e-9)


def test_elastic_transform_moves_by_smooth_displacements(image):
    moved = digital.elastic_transform(image, rng(), 3.2, 1.28, 0.0)
    draws = rng()
    draws.uniform(size=(3, 2))
    down, right = (
        scipy.ndimage.gaussian_filter(plane, 1.28, truncate=3)
        for plane in draws.uniform(-3.2, 3.2, (2, 32, 32))
    )
    for y, x in ((0, 0), (9, 14), (31, 20)):
        at = [[y + down[y, x]], [x + right[y, x]]]
        for channel in range(3):
            expected = scipy.ndimage.map_coordinates(
                image[..., channel], at, order=1, mode="reflect"
            )
            np.testing.assert_allclose(
                moved[y, x, channel], expected[0], atol=1e-9
            )
