"""Autocast on the device: which op runs in which dtype under ``torch.autocast("pjrt")``.

The lists are PyTorch's own for an accelerator (``ATen/autocast_mode.h``, those of CUDA): matrix products and
convolutions in the lower precision, what loses digits in float32, what mixes operands in the widest of
them. float64 is left alone, as PyTorch leaves it: a float64 program is the same program under autocast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from backend.embedded.backend import DEVICE_NAME
from backend.embedded.lower.table import each

aten = torch.ops.aten
Tensor = torch.Tensor
_KEY = "AutocastPrivateUse1"
_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

LOWER = each("""
    _convolution _convolution.deprecated conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm
    bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention lstm.input gru.input rnn_tanh.input
    rnn_relu.input
""")
FLOAT32 = each("""
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
    pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm
    nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss
    kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
    upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa
""")
#: These add up in float32, and say so by their ``dtype`` where the caller has not.
FLOAT32_RESULT = each("""
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
""")
PROMOTE = each("""
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add cat stack
""")


class UnsafeUnderAutocast(RuntimeError):
    """An op that overflows in half precision, in the words PyTorch uses for it on CUDA."""

    def __init__(self) -> None:
        super().__init__(
            "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: "
            "use binary_cross_entropy_with_logits (BCEWithLogitsLoss), or leave autocast around the loss "
            f"(torch.autocast('{DEVICE_NAME}', enabled=False))"
        )


#: The lower-precision copies of parameters in the current autocast region, and what each was made of.
_copies: WeakIdKeyDictionary = WeakIdKeyDictionary()


def _eligible(value: Any) -> bool:
    return (
        isinstance(value, Tensor)
        and value.device.type == DEVICE_NAME
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """``value`` in ``dtype`` where autocast may change it; parameters are cast once a region."""
    if isinstance(value, list | tuple):
        return [_cast(v, dtype) for v in value]
    if not _eligible(value) or value.dtype is dtype:
        return value
    kept = (
        dtype.itemsize < 4
        and value.is_leaf
        and value.requires_grad
        and value.dtype is torch.float32
        and type(value) in (Tensor, torch.nn.Parameter)
        and torch.is_autocast_cache_enabled()
    )
    if not kept:
        return value.to(dtype)
    state = (dtype, value._version, torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    held = _copies.get(value)
    if held is None or held[0] != state:
        held = _copies[value] = (state, value.to(dtype))
    return held[1]


def clear_copies() -> None:
    """Forget the copies of parameters: PyTorch does so where the outermost autocast region ends."""
    _copies.clear()


def _in(dtype_of: Callable[[tuple[Any, ...]], torch.dtype], op: torch._ops.OpOverload) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            dtype = dtype_of((*args, *kwargs.values()))
            return op(*(_cast(a, dtype) for a in args), **{k: _cast(v, dtype) for k, v in kwargs.items()})

    return run


def _lower(_: tuple[Any, ...]) -> torch.dtype:
    return torch.get_autocast_dtype(DEVICE_NAME)


def _float32(_: tuple[Any, ...]) -> torch.dtype:
    return torch.float32


def _widest(values: tuple[Any, ...]) -> torch.dtype:
    """float32 where one operand is, else the lower precision."""
    for value in values:
        for one in value if isinstance(value, list | tuple) else (value,):
            if _eligible(one) and one.dtype is torch.float32:
                return torch.float32
    return torch.get_autocast_dtype(DEVICE_NAME)


def _with_dtype(op: torch._ops.OpOverload) -> Callable[..., Any]:
    place = next(i for i, a in enumerate(op._schema.arguments) if a.name == "dtype")

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_KEYS):
            given = args[place] if place < len(args) else kwargs.get("dtype")
            if _eligible(args[0]) and given is None:
                return op(*args[:place], **{**kwargs, "dtype": torch.float32})
            return op(*args, **kwargs)

    return run


def _norm(x: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    with torch._C._ExcludeDispatchKeyGuard(_KEYS):
        dtype = torch.float32 if _eligible(x) else x.dtype
        if dim is None:
            return aten.norm.ScalarOpt_dtype(x, p, dtype=dtype)
        return aten.norm.ScalarOpt_dim_dtype(x, p, dim, keepdim, dtype=dtype)


def _refuse(*_: Any, **__: Any) -> Any:
    raise UnsafeUnderAutocast


def _overload(name: str) -> torch._ops.OpOverload:
    packet, _, overload = name.partition(".")
    found: torch._ops.OpOverload = getattr(getattr(aten, packet), overload or "default")
    return found


def register() -> list[torch.library.Library]:
    """Enter the policy; every other op passes autocast by. The libraries must be kept alive."""
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, _KEY)
    library = torch.library.Library("aten", "IMPL")
    policy: list[tuple[list[str], Callable[[torch._ops.OpOverload], Callable[..., Any]]]] = [
        (LOWER, functools.partial(_in, _lower)),
        (FLOAT32, functools.partial(_in, _float32)),
        (FLOAT32_RESULT, _with_dtype),
        (PROMOTE, functools.partial(_in, _widest)),
        (["norm.Scalar", "norm.ScalarOpt_dim"], lambda _: _norm),
        (["binary_cross_entropy"], lambda _: _refuse),
    ]
    for names, kernel in policy:
        for name in names:
            op = _overload(name)
            library.impl(op, kernel(op), _KEY)
    _clear_with_pytorchs()
    return [library, everything]


def _clear_with_pytorchs() -> None:
    original = torch.clear_autocast_cache

    @functools.wraps(original)
    def clear() -> None:
        clear_copies()
        original()

    torch.clear_autocast_cache = clear
