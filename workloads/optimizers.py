"""The optimizers that training steps use, as torch ships them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: What :func:`make_optimizer` knows.
NAMES = ("sgd", "adamw")


def make_optimizer(name: str, module: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimizer of that name over the parameters of ``module``, torch's own choice of loop.

    ``sgd``: learning rate 0.01, momentum 0.9 (He et al. 2015, arXiv 1512.03385, section 3.4, has this momentum).
    ``adamw``: learning rate 1e-3, torch's default betas and weight decay.

    Raises:
        ValueError: no optimizer is called that.
    """
    import torch

    if name == "sgd":
        return torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    if name == "adamw":
        return torch.optim.AdamW(module.parameters(), lr=1e-3)
    raise ValueError(f"no optimizer is called '{name}': give one of {', '.join(NAMES)}")
