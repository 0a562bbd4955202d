"""Elementwise ops where a library's answer and PyTorch's part ways: zeros, signs, infinities, integers."""

import pytest
import torch

VALUES = {
    torch.float64: [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e300, float("inf"), float("-inf"), float("nan")],
    torch.int64: [0, 1, -1, 2, -3, 7, 2**40],
    torch.uint8: [0, 1, 2, 7, 255],
    torch.bool: [False, True],
}
UNARY = """abs neg sign sgn floor ceil trunc round frac exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal
sin cos tanh sigmoid erf erfc relu isnan isinf isfinite logical_not signbit digamma square""".split()
BINARY = """add sub mul div floor_divide remainder fmod pow maximum minimum fmax fmin atan2 copysign hypot
eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor""".split()


def both(function, *tensors):
    """The CPU's result and the device's; None where the CPU refuses the dtype."""
    try:
        expected = function(*tensors)
    except (RuntimeError, ZeroDivisionError):
        return None
    return expected, function(*(t.to("pjrt") for t in tensors)).cpu()


@pytest.mark.parametrize("dtype", list(VALUES), ids=str)
@pytest.mark.parametrize("name", UNARY)
def test_unary(pjrt, name, dtype):
    results = both(getattr(torch, name), torch.tensor(VALUES[dtype], dtype=dtype))
    if results is not None:
        torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("dtype", list(VALUES), ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_binary(pjrt, name, dtype):
    values = torch.tensor(VALUES[dtype], dtype=dtype)
    left, right = values[:, None], values[None]
    if dtype in (torch.int64, torch.uint8) and name in ("floor_divide", "remainder", "fmod"):
        right = right[right != 0][None]  # PyTorch raises on the CPU, and promises nothing elsewhere
    results = both(getattr(torch, name), left, right)
    if results is not None:
        tolerance = 1e-12 if results[0].dtype is torch.float64 else 1e-6
        torch.testing.assert_close(results[1], results[0], rtol=tolerance, atol=0, equal_nan=True)


@pytest.mark.parametrize("mode", ["trunc", "floor"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.int64], ids=str)
def test_rounded_division(pjrt, mode, dtype):
    values = torch.tensor(VALUES[dtype], dtype=dtype)
    right = values if dtype.is_floating_point else values[values != 0]
    expected, got = both(lambda a, b: torch.div(a, b, rounding_mode=mode), values[:, None], right[None])
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=0, equal_nan=True)


SHIFTS = [-65, -64, -1, 0, 1, 3, 7, 8, 31, 63, 64, 70]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__"])
def test_shifts_by_every_count_that_is_and_is_none(pjrt, name, dtype):
    limits = torch.iinfo(dtype)
    values = torch.tensor([0, 1, 2, 5, limits.max, limits.min], dtype=dtype)
    counts = torch.tensor([c for c in SHIFTS if limits.min <= c <= limits.max], dtype=dtype)
    function = getattr(torch.Tensor, name) if name.startswith("__") else getattr(torch, name)
    expected, got = both(function, values[:, None], counts[None])
    assert got.dtype == dtype and torch.equal(got, expected)
    expected, got = both(lambda x: function(x, 3), values)
    assert torch.equal(got, expected)


@pytest.mark.parametrize("operator", ["__ilshift__", "__irshift__"])
def test_shifts_in_place(pjrt, operator):
    values = torch.tensor([0, 1, -9, 2**40])
    mine = values.to("pjrt")
    assert getattr(mine, operator)(2) is mine
    assert torch.equal(mine.cpu(), getattr(values.clone(), operator)(2))
    getattr(mine, operator)(torch.tensor([1, 2, 3, 4]).to("pjrt"))
    expected = getattr(getattr(values.clone(), operator)(2), operator)(torch.tensor([1, 2, 3, 4]))
    assert torch.equal(mine.cpu(), expected)


def test_a_float_is_not_shifted(pjrt):
    with pytest.raises(RuntimeError, match="integral"):
        torch.ones(2).to("pjrt") << 1


NUMBER_FIRST = """bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift remainder pow
float_power xlogy special.xlog1py special.zeta""".split()


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64], ids=str)
@pytest.mark.parametrize("name", NUMBER_FIRST)
def test_a_number_may_stand_first(pjrt, name, dtype):
    function = getattr(torch.special, name[8:]) if name.startswith("special.") else getattr(torch, name)
    results = both(lambda x: function(3, x), torch.tensor([1, 2, 5], dtype=dtype))
    if results is not None:
        torch.testing.assert_close(results[1], results[0], rtol=1e-6, atol=0)
