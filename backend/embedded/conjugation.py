"""Conjugations and negations that PyTorch only notes on a tensor (``x.conj()``, ``x.imag``)."""

from __future__ import annotations

from typing import Any

import torch

from backend.embedded.dispatch import Op

_conjugate = Op(torch.ops.aten._conj_physical.default)
_negate = Op(torch.ops.aten.neg.default)

#: Ops that PyTorch hands a noted conjugation to: its own kernels carry it out as they go.
TAKES_NOTES = {"_conj_physical", "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "vdot"}


def resolved(value: Any) -> Any:
    """A tensor with a conjugation or negation that PyTorch only noted on it carried out; else ``value``.

    Programs read the buffer, which knows nothing of the note.
    """
    if isinstance(value, torch.Tensor) and value.device.type == "pjrt":
        value = _conjugate((value,), {}) if value.is_conj() else value
        value = _negate((value,), {}) if value.is_neg() else value
    return value
