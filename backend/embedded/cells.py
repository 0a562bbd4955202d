"""The fused recurrent cells: the shapes that PyTorch does not know, and a cell without biases."""

from __future__ import annotations

from typing import Any

import torch

from backend.embedded.dispatch import Op
from backend.embedded.kernels import kernel

aten = torch.ops.aten
Tensor = torch.Tensor

_meta = torch.library.Library("aten", "IMPL", "Meta")


def _gru_shapes(inputs: Tensor, hidden: Tensor, hx: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return torch.empty_like(hx), inputs.new_empty((hx.shape[0], 5 * hx.shape[1]))


def _gru_backward_shapes(grad_hy: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Any, ...]:
    batch, width = grad_hy.shape
    gates = [workspace.new_empty((batch, 3 * width)) for _ in range(2)]
    biases = [workspace.new_empty((3 * width,)) for _ in range(2)] if has_bias else [None, None]
    return (*gates, torch.empty_like(grad_hy), *biases)


# PyTorch has no shape functions for these.
_meta.impl("_thnn_fused_gru_cell", _gru_shapes)
_meta.impl("_thnn_fused_gru_cell_backward", _gru_backward_shapes)


_lstm = Op(aten._thnn_fused_lstm_cell.default)


@kernel(aten._thnn_fused_lstm_cell.default)
def lstm_cell(
    inputs: Tensor, hidden: Tensor, cx: Tensor, input_bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> Any:
    """The LSTM cell; PyTorch's shape function wants biases, so a cell that has none gets zeros."""
    if input_bias is None or hidden_bias is None:
        input_bias = hidden_bias = inputs.new_zeros(inputs.shape[1])
    return _lstm((inputs, hidden, cx, input_bias, hidden_bias), {})
