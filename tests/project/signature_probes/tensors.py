"""Tensors, images and the functions that make them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import pumice
from signature_probes.probe import covers, differ, expect_error

ARRAY = np.arange(6, dtype="float32").reshape(2, 3)


@covers("Tensor.__array__.dtype", "Tensor.__array__.copy", "Image.__array__.dtype", "Image.__array__.copy")
def as_arrays(context: pumice.Context) -> None:
    for made in (pumice.tensor(ARRAY, context), pumice.image(ARRAY, "r32f", context)):
        assert made.__array__().dtype == "float32"
        assert made.__array__("int64").dtype == "int64"
        assert made.__array__(copy=True).shape == (2, 3)
        expect_error(lambda made=made: made.__array__(copy=False), "always copies", ValueError)


@covers("Tensor.numpy.out", "empty_host.context")
def host_arrays(context: pumice.Context) -> None:
    host = pumice.empty_host(ARRAY.shape, "float32", context)
    assert pumice.tensor(ARRAY, context).numpy(out=host) is host
    differ(host, ARRAY * 2)
    expect_error(lambda: pumice.tensor(ARRAY, context).numpy(out=host[0]), "out")
    with pumice.Context(f"uuid:{context.info.uuid}") as closed:
        pass
    expect_error(lambda: pumice.empty_host(2, "int8", closed), "closed")


@covers("empty.share")
def memory_for_others(context: pumice.Context) -> None:
    assert pumice.empty(2, "int8", context, share=None).shape == (2,)
    expect_error(lambda: pumice.empty(2, "int8", context, share="opencl"), "'cuda' or None; given 'opencl'")


@covers(
    "Tensor.__dlpack__.stream",
    "Tensor.__dlpack__.max_version",
    "Tensor.__dlpack__.dl_device",
    "Tensor.__dlpack__.copy",
)
def shared(context: pumice.Context) -> None:
    tensor = pumice.tensor(ARRAY, context)
    expect_error(lambda: tensor.__dlpack__(stream=1), "stream", BufferError)
    expect_error(lambda: tensor.__dlpack__(dl_device=(2, 0)), "device", BufferError)
    differ(
        "dltensor_versioned" in repr(tensor.__dlpack__(max_version=(1, 0))),
        "dltensor_versioned" in repr(tensor.__dlpack__()),
    )
    host = pumice.Tensor(pumice.TensorDesc("float32", [6]), pumice.Buffer(context, 64, "readback"))
    host.buffer.map()
    for copy in (True, False):
        array = np.from_dlpack(host, copy=copy)
        host.fill(7 if copy else 9)
        assert (array == 9).all() != copy
    broadcast = pumice.zeros(1, context=context).broadcast_to([4])
    expect_error(lambda: broadcast.__dlpack__(copy=False), "copy", BufferError)


@covers("Tensor.__init__.offset", "Tensor.squeeze.axis", "Tensor.transpose.axes")
def views(context: pumice.Context) -> None:
    whole = pumice.tensor(ARRAY.ravel(), context)
    desc = pumice.TensorDesc("float32", [2])
    differ(*(pumice.Tensor(desc, whole.buffer, offset).numpy() for offset in (0, 2)))
    expect_error(lambda: pumice.Tensor(desc, whole.buffer, 1 << 30), "R1")
    ones = pumice.zeros([1, 3, 1], context=context)
    differ(
        *(ones.squeeze(*axis).shape for axis in ((), (0,), (2,)))
        if False
        else (ones.squeeze().shape, ones.squeeze(0).shape)
    )
    assert ones.squeeze(2).shape == (1, 3)
    expect_error(lambda: ones.squeeze(1))
    cube = pumice.zeros([2, 3, 4], context=context)
    differ(cube.transpose().shape, cube.transpose([1, 0, 2]).shape)


@covers("Image.__init__.filter", "Image.__init__.address", "Image.__init__.normalized")
def images(context: pumice.Context) -> None:
    plain = pumice.Image(context, "r32f", [4, 4])
    for name, given in (("filter", "linear"), ("address", "border"), ("normalized", True)):
        made = pumice.Image(context, "r32f", [4, 4], **{name: given})
        assert getattr(made, name) == given != getattr(plain, name)
        expect_error(lambda name=name: pumice.Image(context, "r32f", [4, 4], **{name: "wobble"}))


@covers("image.context", "image.filter", "image.address", "image.normalized")
def filled_images(context: pumice.Context) -> None:
    for name, given in (("filter", "linear"), ("address", "border"), ("normalized", True)):
        assert getattr(pumice.image(ARRAY, "r32f", context, **{name: given}), name) == given
    assert pumice.image(ARRAY, "r32f", context).context is context


MAKERS: dict[str, Callable[..., Any]] = {
    "empty": lambda **given: pumice.empty([2], "float32", **given),
    "full": lambda **given: pumice.full([2], 1, **given),
    "zeros": lambda **given: pumice.zeros([2], **given),
    "ones": lambda **given: pumice.ones([2], **given),
    "tensor": lambda **given: pumice.tensor(ARRAY, **given),
    "asarray": lambda **given: pumice.asarray(ARRAY, **given),
    "from_dlpack": lambda **given: pumice.from_dlpack(ARRAY, **given),
}


@covers(*(f"{name}.context" for name in MAKERS), "from_host.context")
def contexts(context: pumice.Context) -> None:
    with pumice.Context(f"uuid:{context.info.uuid}") as other:
        for make in MAKERS.values():
            assert make(context=other).context is other
            assert make().context is pumice.default_context()
            expect_error(lambda make=make: make(context="llvmpipe"), "argument 'context'")
    expect_error(lambda: pumice.from_host(ARRAY, "llvmpipe"), "argument 'context'")  # type: ignore[arg-type]
    expect_error(lambda: pumice.asarray(pumice.zeros(2), context=pumice.Context()), "M3")


@covers("full.dtype", "zeros.dtype", "ones.dtype", "asarray.dtype")
def dtypes(context: pumice.Context) -> None:
    for name in ("full", "zeros", "ones", "asarray"):
        assert MAKERS[name](dtype="int16").dtype == "int16"
        assert MAKERS[name]().dtype == "float32"


@covers("asarray.copy", "from_dlpack.copy")
def copies(context: pumice.Context) -> None:
    tensor = pumice.zeros(4, context=context)
    assert pumice.asarray(tensor) is tensor
    assert pumice.asarray(tensor, copy=True) is not tensor
    assert pumice.asarray(tensor, copy=False) is tensor
    expect_error(lambda: pumice.asarray(tensor, "int32", copy=False), "without a copy")
    read_only = ARRAY.copy()
    read_only.flags.writeable = False
    for make in (pumice.asarray, pumice.from_dlpack):
        make(read_only, context=context)
        expect_error(lambda make=make: make(read_only, context=context, copy=False), "without a copy")


@covers(
    *(
        f"load_image.{name}"
        for name in ("mode", "size", "fit", "resample", "invert", "scale", "mean", "std", "layout", "dtype")
    )
)
def pictures(context: pumice.Context) -> None:
    import pytest

    image_module = pytest.importorskip("PIL.Image")
    random = np.random.default_rng(0).integers(0, 256, (6, 9, 3)).astype("uint8")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "picture.png"
        image_module.fromarray(random).save(path)
        base: dict[str, Any] = {"size": (4, 4)}
        others = {
            "mode": "BGR",
            "size": (3, 4),
            "fit": "stretch",
            "resample": "nearest",
            "invert": "always",
            "scale": "1/255",
            "mean": [1.0],
            "std": [2.0],
            "layout": "NHWC",
            "dtype": "uint8",
        }
        plain = pumice.load_image(path, **base)
        for name, given in others.items():
            made = pumice.load_image(path, **{**base, name: given})
            assert made.shape != plain.shape or made.dtype != plain.dtype or (made != plain).any(), name
        for name in ("mode", "fit", "resample", "invert", "scale", "layout"):
            expect_error(lambda name=name: pumice.load_image(path, **{**base, name: "wobble"}), name)
        expect_error(lambda: pumice.load_image(path, dtype="uint8", mean=[1.0]), "mean")
