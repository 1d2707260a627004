"""Tests of load_image: bit-exact with the preprocessing of the pretrained models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pumice
from pumice.device.image_loading import load_image

Image = pytest.importorskip("PIL.Image")

IMAGENET = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
PREPARATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    # expected array: (model, image, options)
    "mnist_image1": ("mnist", "mnist_image1.png", {"mode": "L", "size": 28, "invert": "auto", "scale": "1/max"}),
    **{
        name: ("squeezenet", f"{name}.jpg", {"size": 224, "scale": "1/max", **IMAGENET})
        for name in ("DefaultImage", "dog2", "chihuahua", "zebra")
    },
    "DefaultImage_128": ("candy", "DefaultImage.jpg", {"mode": "BGR", "size": 128}),
    "dog2_64": ("superres", "dog2.jpg", {"mode": "Y", "size": 64, "scale": "1/255"}),
    "dog2_224": ("superres", "dog2.jpg", {"mode": "Y", "size": (224, 224), "scale": "1/255"}),
}


@pytest.mark.parametrize("case", PREPARATIONS)
def test_pictures_are_prepared_to_the_bit(shared_models: Path, case: str) -> None:
    model, picture, options = PREPARATIONS[case]
    image = load_image(shared_models / model / "images" / picture, resample="nearest", **options)
    expected = np.load(shared_models / model / "expected" / f"{case}.input.npy")
    np.testing.assert_array_equal(image, expected, strict=True)


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    """A 4 x 2 image: red, green, blue and white above, black below."""
    pixels = np.zeros((2, 4, 3), np.uint8)
    pixels[0] = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]
    Image.fromarray(pixels).save(tmp_path / "colours.png")
    return tmp_path / "colours.png"


def test_layouts(picture: Path) -> None:
    nchw = load_image(picture)
    assert nchw.shape == (1, 3, 2, 4)
    assert nchw.dtype == np.float32
    assert nchw.flags.c_contiguous
    np.testing.assert_array_equal(load_image(picture, layout="CHW"), nchw[0])
    np.testing.assert_array_equal(load_image(picture, layout="NHWC"), nchw.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(load_image(picture, layout="HWC"), nchw[0].transpose(1, 2, 0))
    grey = load_image(picture, mode="L", layout="HW")
    np.testing.assert_array_equal(load_image(picture, mode="L", layout="NHW"), grey[None])
    np.testing.assert_array_equal(load_image(picture, mode="BGR"), nchw[:, ::-1])


def test_a_crop_keeps_the_centre_and_stretching_keeps_all(picture: Path) -> None:
    cropped = load_image(picture, size=2, resample="nearest")
    np.testing.assert_array_equal(cropped, load_image(picture)[:, :, :, 1:3])
    stretched = load_image(picture, size=(2, 2), fit="stretch", resample="box")
    assert stretched[0, 0, 0, 0] == 128  # average of red and green


def test_integers_stay_as_they_are(picture: Path) -> None:
    image = load_image(picture, dtype="uint8")
    assert image.dtype == np.uint8
    assert image.max() == 255
    with pytest.raises(pumice.Error, match="input of floats, given uint8"):
        load_image(picture, dtype="uint8", scale="1/255")


def test_scales(picture: Path) -> None:
    np.testing.assert_array_equal(load_image(picture, scale="1/255"), load_image(picture) / np.float32(255))
    np.testing.assert_array_equal(load_image(picture, scale="0.5"), load_image(picture, scale=0.5))
    np.testing.assert_array_equal(load_image(picture, scale="0.5"), load_image(picture) / 2)


def test_a_black_picture_divides_by_nothing(tmp_path: Path) -> None:
    Image.new("RGB", (3, 3)).save(tmp_path / "black.png")
    assert not load_image(tmp_path / "black.png", scale="1/max").any()


def test_an_upright_picture_from_a_turned_camera(tmp_path: Path) -> None:
    turned = Image.new("RGB", (4, 2))
    exif = turned.getexif()
    exif[0x0112] = 6  # EXIF orientation: rotated by 90 degrees
    turned.save(tmp_path / "turned.png", exif=exif)
    assert load_image(tmp_path / "turned.png").shape == (1, 3, 4, 2)


def test_grey_of_16_bits_keeps_its_range(tmp_path: Path) -> None:
    Image.fromarray(np.array([[0, 257, 32768, 65535]], "uint16")).save(tmp_path / "grey.png")
    values = load_image(tmp_path / "grey.png", mode="L", scale="1")
    assert values.reshape(-1).tolist() == [0, 1, 128, 255]


def test_a_picture_of_floats_is_rejected(tmp_path: Path) -> None:
    Image.fromarray(np.ones((2, 2), "float32")).save(tmp_path / "floats.tiff")
    with pytest.raises(pumice.Error, match="8 or 16 bits, given one of mode 'F'"):
        load_image(tmp_path / "floats.tiff")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "HSV"}, "mode: expected one of RGB, BGR, L, Y, given 'HSV'"),
        ({"layout": "HW"}, "layout HW: expected one colour, given 3"),
        ({"scale": "1/many"}, "given '1/many'"),
        ({"scale": "much"}, "given 'much'"),
        ({"mean": [1, 2]}, "mean: expected 1 or 3 numbers, given 2"),
        ({"std": [1, 0, 1]}, "std: expected nonzero numbers"),
        ({"resample": "area"}, "resample"),
        ({"fit": "pad"}, "fit"),
    ],
)
def test_wrong_options_are_named(picture: Path, options: dict[str, Any], text: str) -> None:
    with pytest.raises(pumice.Error, match=text.replace("(", r"\(")):
        load_image(picture, **options)


def test_a_file_that_is_no_picture_is_named(tmp_path: Path) -> None:
    (tmp_path / "words.png").write_text("words")
    with pytest.raises(pumice.Error, match=r"words\.png': expected an image"):
        load_image(tmp_path / "words.png")
    with pytest.raises(FileNotFoundError):
        load_image(tmp_path / "absent.png")
