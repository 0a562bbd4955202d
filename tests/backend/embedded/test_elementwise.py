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
