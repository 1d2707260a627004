"""Memory shared between pumice and CUDA, used by torch. Skipped without torch and a GPU that both can use."""

from __future__ import annotations

import gc
import os
import random
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import pumice

torch = pytest.importorskip("torch", reason="torch is not installed (the extra [torch])")
if not torch.cuda.is_available():
    pytest.skip("torch finds no CUDA device here", allow_module_level=True)

from pumice.torch import ordered, wrap  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

# x = x * factor + term, one element per invocation; two such kernels do not commute.
AFFINE = """
layout(local_size_x = 256) in;
layout(binding = 0) readonly buffer X { int x[]; };
layout(binding = 1) writeonly buffer Y { int y[]; };
layout(push_constant) uniform parameter { int factor; int term; } p;
void main() { uint i = gl_GlobalInvocationID.x; if (i < x.length()) y[i] = x[i] * p.factor + p.term; }
"""
TWICE_PLUS = """
layout(binding = 0) readonly buffer X { float x[]; };
layout(binding = 1) readonly buffer Y { float y[]; };
layout(binding = 2) writeonly buffer Z { float z[]; };
void main() { uint i = gl_GlobalInvocationID.x; z[i] = 2 * x[i] + y[i]; }
"""
STEPS = 10_000
LONG = 500_000_000  # clock cycles that keep a torch stream busy, at least 0.25 s


@pytest.fixture(scope="module")
def shared() -> Iterator[pumice.Context]:
    """A context on the GPU that torch calls cuda:0."""
    uuid = str(torch.cuda.get_device_properties(0).uuid).replace("-", "")
    if uuid not in {device.uuid for device in pumice.devices()}:
        pytest.skip(f"no Vulkan driver here has the GPU {uuid} of torch's cuda:0")
    with pumice.Context(f"uuid:{uuid}") as context:
        yield context
        torch.cuda.synchronize()


@pytest.fixture(scope="module")
def affine(shared: pumice.Context) -> pumice.Kernel:
    return pumice.Kernel(AFFINE, context=shared)


def both(shape: int | tuple[int, ...], dtype: str, context: pumice.Context):  # type: ignore[no-untyped-def]
    """Return a tensor in shared memory, as pumice and as torch see it."""
    tensor = pumice.empty(shape, dtype, context, share="cuda")
    return tensor, torch.from_dlpack(tensor)


def test_both_see_one_memory(shared: pumice.Context) -> None:
    tensor, view = both((3, 5), "float32", shared)
    assert tuple(view.shape) == (3, 5) and view.dtype == torch.float32 and view.device == torch.device("cuda", 0)
    assert view.data_ptr() == tensor.buffer._mapping[0]
    view.copy_(torch.arange(15.0).reshape(3, 5))
    torch.cuda.synchronize()
    assert np.array_equal(tensor.numpy(), np.arange(15, dtype="float32").reshape(3, 5))
    tensor.upload(np.full((3, 5), 7, "float32"))
    shared.wait_idle()
    assert (view == 7).all().item()


def test_views_of_both_kinds_see_it_too(shared: pumice.Context) -> None:
    tensor, view = both((4, 6), "int32", shared)
    view.copy_(torch.arange(24, dtype=torch.int32).reshape(4, 6))
    torch.cuda.synchronize()
    assert torch.equal(torch.from_dlpack(tensor[1:3, ::2].T), view[1:3, ::2].T)
    back = pumice.from_dlpack(view[2:, 1:], shared)
    assert back.buffer.id == tensor.buffer.id and back.offset == 13
    assert np.array_equal(back.numpy(), tensor.numpy()[2:, 1:])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int64", "uint8", "bool"])
def test_dtypes(shared: pumice.Context, dtype: str) -> None:
    tensor, view = both(33, dtype, shared)
    view.copy_(torch.arange(33) % 2)
    torch.cuda.synchronize()
    assert np.array_equal(tensor.numpy().astype("int64"), np.arange(33) % 2)


def interleaved(context: pumice.Context, kernel: pumice.Kernel, seed: int, steps: int, size: int) -> None:
    """Run random torch and pumice operations, ordered only on the GPU, and compare with the same on one number."""
    draw = random.Random(seed)
    pairs = [both(size, "int32", context) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    for _, view in pairs:
        view.fill_(1)
    torch.cuda.synchronize()
    expected, at, stream = 1, 0, streams[0]
    for step in range(steps):
        factor, term = draw.choice((3, 5, -7)), draw.randrange(100)
        if draw.random() < 0.1:
            following = draw.choice(streams)
            following.wait_stream(stream)
            stream = following
        with torch.cuda.stream(stream):
            if draw.random() < 0.5:
                pairs[at][1].mul_(factor).add_(term)
            else:
                with ordered(context=context):
                    kernel(x=pairs[at][0], y=pairs[1 - at][0], factor=factor, term=term, threads=size)
                at = 1 - at
        expected = (expected * factor + term + 2**31) % 2**32 - 2**31
        if step % 1000 == 999:
            torch.cuda.synchronize()
            assert (pairs[at][1] == expected).all().item(), f"step {step} of seed {seed}"
    torch.cuda.synchronize()
    assert (pairs[at][1] == expected).all().item()


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_random_interleavings_are_ordered(shared: pumice.Context, affine: pumice.Kernel, size: int) -> None:
    interleaved(shared, affine, size, STEPS, size)


def test_two_threads(shared: pumice.Context, affine: pumice.Kernel) -> None:
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            interleaved(shared, affine, seed, 2000, 10_000)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_a_committed_list_is_ordered(shared: pumice.Context, affine: pumice.Kernel) -> None:
    (x, x_view), (y, y_view) = both(1000, "int32", shared), both(1000, "int32", shared)
    commands = pumice.CommandList(shared)
    commands.dispatch(affine.bind(x=x, y=y, factor=2, term=1, threads=1000))
    commands.commit()
    x_view.fill_(1)
    for _ in range(1000):
        with ordered(context=shared):
            commands.exec()
        x_view.copy_(y_view)
    expected = 1
    for _ in range(1000):
        expected = (expected * 2 + 1 + 2**31) % 2**32 - 2**31
    assert (x_view == expected).all().item()


def test_no_host_waits(shared: pumice.Context, affine: pumice.Kernel) -> None:
    """The calls return while the GPU is still busy with earlier work."""
    (x, x_view), (y, y_view) = both(1000, "int32", shared), both(1000, "int32", shared)
    with ordered(context=shared):
        affine(x=x, y=y, factor=2, term=0, threads=1000)
    torch.cuda.synchronize()
    torch.cuda._sleep(LONG)
    x_view.fill_(20)
    with ordered(context=shared):
        affine(x=x, y=y, factor=2, term=2, threads=1000)
    y_view.add_(1)
    assert not torch.cuda.current_stream().query(), "the GPU had nothing left to do when the calls were over"
    torch.cuda.synchronize()
    assert (y_view == 43).all().item()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_nothing_is_left_behind(shared: pumice.Context, affine: pumice.Kernel) -> None:
    count = 1 << 24  # large enough that memory used by other processes on this GPU does not matter

    def one() -> None:
        (x, view), (y, _) = both(count, "int32", shared), both(count, "int32", shared)
        view.fill_(3)
        with ordered(context=shared):
            affine(x=x, y=y, factor=2, term=1, threads=count)

    def settled() -> tuple[int, int, int]:
        gc.collect()
        torch.cuda.synchronize()
        shared.wait_idle()
        pumice.empty(1, "int32", shared).buffer.close()  # frees retired buffers
        return descriptors(), shared.memory.buffers, shared.memory.blocks

    for _ in range(10):
        one()
    before, free = settled(), torch.cuda.mem_get_info()[0]
    for _ in range(100):  # two tensors each
        one()
    after = settled()
    assert after[0] <= before[0] and after[1] <= before[1] and after[2] <= before[2], (before, after)
    assert free - torch.cuda.mem_get_info()[0] < 200 * 4 * count / 2


def test_memory_lives_while_torch_holds_it(shared: pumice.Context) -> None:
    tensor, view = both(1 << 20, "int32", shared)
    tensor.upload(np.arange(1 << 20, dtype="int32"))
    shared.wait_idle()
    held = shared.memory.buffers
    del tensor
    gc.collect()
    others = [both(1 << 20, "int32", shared) for _ in range(4)]
    for _, other in others:
        other.fill_(-1)
    assert torch.equal(view.cpu(), torch.arange(1 << 20, dtype=torch.int32))
    del others, other, _
    assert shared.memory.buffers == held
    del view
    gc.collect()
    assert shared.memory.buffers == held - 1


def test_memory_lives_while_pumice_holds_it(shared: pumice.Context) -> None:
    tensor, view = both(1 << 20, "int32", shared)
    view.copy_(torch.arange(1 << 20))
    torch.cuda.synchronize()
    del view
    gc.collect()
    torch.empty(1 << 20, dtype=torch.int32, device="cuda").fill_(-1)
    torch.cuda.synchronize()
    assert np.array_equal(tensor.numpy(), np.arange(1 << 20, dtype="int32"))


def test_a_kernel_takes_tensors_of_torch(shared: pumice.Context, affine: pumice.Kernel) -> None:
    (_, x), (_, y) = both((10, 10), "int32", shared), both(100, "int32", shared)
    for start in range(100):
        x.fill_(start)
        with ordered(context=shared):
            affine(x=x, y=y, factor=3, term=1, threads=100)
        assert (y == 3 * start + 1).all().item()
    with pytest.raises(pumice.UnsupportedError, match="memory this context does not share"):
        affine(x=torch.ones(100, dtype=torch.int32, device="cuda"), y=y, factor=1, term=1, threads=100)


def test_memory_of_torch_alone_is_rejected(shared: pumice.Context) -> None:
    foreign = torch.ones(5, device="cuda")
    with pytest.raises(
        pumice.UnsupportedError, match=r'CUDA device 0 whose memory this context does not share.*share="cuda"'
    ):
        pumice.from_dlpack(foreign, shared)


def test_another_order_inside_is_rejected(shared: pumice.Context) -> None:
    with ordered(context=shared), ordered(context=shared):
        pass
    with (
        ordered(context=shared),
        pytest.raises(pumice.StateError, match="has already begun an order of this context with another stream"),
    ):
        ordered(torch.cuda.Stream(), context=shared).__enter__()
    with pytest.raises(pumice.BindingError, match="torch.cuda.Stream of cuda:0"):
        ordered(3, context=shared)


def test_a_call_that_fails_leaves_the_order_intact(shared: pumice.Context, affine: pumice.Kernel) -> None:
    (x, view), (y, result) = both(100, "int32", shared), both(100, "int32", shared)
    view.fill_(1)
    with pytest.raises(pumice.BindingError), ordered(context=shared):
        affine(x=x, factor=1, term=1, threads=100)
    with ordered(context=shared):
        affine(x=x, y=y, factor=1, term=1, threads=100)
    assert (result == 2).all().item()


@pytest.fixture(scope="module")
def operator(shared: pumice.Context) -> Callable[..., object]:
    return wrap(pumice.Kernel(TWICE_PLUS, context=shared), "pumice_cuda_tests::twice_plus", ["x", "y"], {"z": "x"})


def test_an_operator_runs_on_shared_memory(shared: pumice.Context, operator) -> None:  # type: ignore[no-untyped-def]
    (_, x), (_, y) = both((4, 6), "float32", shared), both((6, 4), "float32", shared)
    for seed in range(100):
        torch.manual_seed(seed)
        x.copy_(torch.randn(4, 6)), y.copy_(torch.randn(6, 4))
        z = operator(x, y.t())
        assert torch.equal(z, 2 * x + y.t())
        assert torch.equal(operator(z, x), 2 * z + x), "a result is shared memory too"


def test_an_operator_rejects_memory_of_torch_alone(shared: pumice.Context, operator) -> None:  # type: ignore[no-untyped-def]
    _, x = both(5, "float32", shared)
    with pytest.raises(pumice.UnsupportedError, match=r"'y' is on 'cuda:0' in memory that pumice does not share"):
        operator(x, torch.ones(5, device="cuda"))


def test_a_compiled_graph_takes_the_operator(shared: pumice.Context, operator) -> None:  # type: ignore[no-untyped-def]
    fast = torch.compile(lambda x, y: operator(x, y) * 3, backend="aot_eager", fullgraph=True)
    (_, x), (_, y) = both(8, "float32", shared), both(8, "float32", shared)
    x.copy_(torch.randn(8)), y.copy_(torch.randn(8))
    torch.testing.assert_close(fast(x, y), (2 * x + y) * 3)


def perceptron():  # type: ignore[no-untyped-def]
    pytest.importorskip("onnxscript", reason="onnxscript is not installed (the extra [torch])")
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval().cuda()


def test_the_backend_takes_tensors_of_cuda(shared: pumice.Context) -> None:
    model = perceptron()
    fast = torch.compile(model, backend="pumice", dynamic=True, options={"context": shared})
    with torch.no_grad():
        for rows in (3, 7, 3, 64):
            x = torch.randn(rows, 8, device="cuda")
            y = fast(x)
            torch.testing.assert_close(y, model(x), rtol=1e-3, atol=1e-4)
            assert pumice.from_dlpack(y, shared).shape == (rows, 4), "a result lies in shared memory"
        _, x = both((5, 8), "float32", shared)
        for _ in range(50):
            x.normal_()
            torch.testing.assert_close(fast(x), model(x), rtol=1e-3, atol=1e-4)
        model[0].weight.mul_(2)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-3, atol=1e-4)


def test_the_backend_does_not_wait(shared: pumice.Context) -> None:
    model = perceptron()
    fast = torch.compile(model, backend="pumice", options={"context": shared})
    with torch.no_grad():
        x = torch.randn(4, 8, device="cuda")
        results = [fast(x) for _ in range(2)]
        torch.cuda.synchronize()
        results.clear()
        torch.cuda._sleep(LONG)
        x.fill_(0.5)
        y = fast(x)
        assert not torch.cuda.current_stream().query(), "the GPU had nothing left to do when the call was over"
        torch.testing.assert_close(y, model(x), rtol=1e-3, atol=1e-4)


def test_the_backend_rejects_control_flow_on_cuda(shared: pumice.Context) -> None:
    def chosen(x):  # type: ignore[no-untyped-def]
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    fast = torch.compile(chosen, backend="pumice", options={"context": shared})
    with torch.no_grad(), pytest.raises(pumice.UnsupportedError, match="on tensors of CUDA: a model with control flow"):
        fast(torch.ones(5, device="cuda"))
