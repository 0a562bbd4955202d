"""Convolutions of every form, forward and backward, against PyTorch's in float64."""

import pytest
import torch

FORMS = [
    # (input, weight, options)
    ((2, 3, 9, 8), (4, 3, 3, 3), {}),
    ((2, 3, 9, 8), (4, 3, 3, 3), {"stride": 2, "padding": 1}),
    ((2, 4, 7, 7), (4, 1, 3, 3), {"groups": 4, "padding": 1}),
    ((2, 4, 9, 9), (6, 2, 3, 3), {"groups": 2, "dilation": 2, "padding": (2, 1)}),
    ((2, 5, 2, 2), (4, 5, 3, 3), {"padding": 1}),  # the kernel exceeds the image
    ((2, 5, 4, 4), (4, 5, 3, 3), {"padding": 1, "stride": 2}),  # and the output
    ((1, 3, 3, 2), (2, 3, 3, 3), {"padding": 2, "dilation": 2}),
    ((2, 3, 11), (4, 3, 5), {"padding": 2}),
    ((2, 3, 2), (4, 3, 5), {"padding": 2}),
    ((1, 2, 5, 5, 5), (3, 2, 3, 3, 3), {"padding": 1}),
    ((3, 9, 8), (4, 3, 3, 3), {}),  # without a batch
]
TRANSPOSED = [
    ((2, 4, 5, 5), (4, 3, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    ((2, 4, 5, 5), (4, 2, 2, 2), {"stride": 2, "groups": 2}),
    ((2, 4, 6), (4, 3, 3), {"dilation": 2}),
]


def gradients(function, x, weight, bias, options, device):
    x, weight, bias = (v.detach().clone().to(device).requires_grad_() for v in (x, weight, bias))
    y = function(x, weight, bias, **options)
    (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype, device="cpu").reshape(y.shape).to(device)).sum().backward()
    return [v.detach().cpu() for v in (y, x.grad, weight.grad, bias.grad)]


def check(kind, form):
    size, weight_size, options = form
    rank = len(weight_size) - 2
    function = getattr(torch.nn.functional, f"conv{kind}{rank}d")
    torch.manual_seed(0)
    x = torch.randn(size, dtype=torch.float64)
    weight = torch.randn(weight_size, dtype=torch.float64)
    channels = weight_size[1] * options.get("groups", 1) if kind else weight_size[0]
    bias = torch.randn(channels, dtype=torch.float64)
    expected = gradients(function, x, weight, bias, options, "cpu")
    got = gradients(function, x, weight, bias, options, "pjrt")
    torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_convolution(pjrt, form):
    check("", form)


@pytest.mark.parametrize("form", TRANSPOSED, ids=str)
def test_transposed_convolution(pjrt, form):
    check("_transpose", form)


def test_another_platform_gets_a_convolution(pjrt):
    import jax

    from backend.embedded import platform
    from backend.embedded.lower.convolution import convolution

    x, w = jax.numpy.ones((1, 2, 2, 2)), jax.numpy.ones((1, 2, 3, 3))

    def ops():
        lowered = jax.jit(lambda x, w: convolution(x, w, None, [1], [1], [1], False, [0], 1)).lower(x, w)
        return lowered.as_text()

    assert "stablehlo.convolution" not in ops()
    platform.compile_for("tpu")
    try:
        assert "stablehlo.convolution" in ops()
    finally:
        platform.compile_for(None)
