"""The torch device: its name, the module PyTorch looks for under ``torch.pjrt``, and its kernels."""

from __future__ import annotations

import os
import warnings
from typing import Any

import torch

from backend.embedded.backend import DEVICE_NAME
from backend.embedded.errors import EmbeddedError
from backend.embedded.module import DeviceModule

_libraries: list[torch.library.Library] = []
_active = False


def activate() -> torch.device:
    """Make the ``pjrt`` device known to torch. Once a process; later calls do nothing.

    Sets ``jax_enable_x64``: 64-bit integers and float64 are PyTorch's, and are not narrowed.

    Raises:
        EmbeddedError: another package holds PyTorch's one slot for an extra device.
    """
    global _active
    if not _active:
        taken = torch._C._get_privateuse1_backend_name()
        if taken not in ("privateuseone", DEVICE_NAME):
            raise EmbeddedError(
                f"PyTorch has one slot for an extra device and '{taken}' holds it: "
                "set TORCH_DEVICE_BACKEND_AUTOLOAD=0 before torch is imported, and do not import that package"
            )
        os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
        import jax

        jax.config.update("jax_enable_x64", True)
        from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

        _setup_privateuseone_for_python_backend(DEVICE_NAME, backend_module=DeviceModule())
        # Module.to() would make new parameters of tied ones: shared weights must stay shared.
        torch.__future__.set_swap_module_params_on_conversion(True)
        _register_kernels()
        _pickle_through_cpu()
        from backend.embedded import compiler, fork, generator, module, storage

        generator.install()
        storage.install()
        module.install()
        fork.install()
        compiler.register()
        _ensure_autograd_knows()
        _active = True
    return torch.device(DEVICE_NAME, 0)


def _ensure_autograd_knows() -> None:
    """Autograd counts devices at the first ``backward()`` of a process, and then never again."""
    # The caller may have switched gradients off.
    with torch.inference_mode(False), torch.enable_grad():
        _run_backward()


def _run_backward() -> None:
    leaf = torch.empty(0, device=DEVICE_NAME, requires_grad=True)
    try:
        leaf.view(0).backward(torch.empty(0, device=DEVICE_NAME))  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise EmbeddedError(
            "a backward() ran in this process before the pjrt device was known, and PyTorch's autograd starts its "
            "device threads only once: call backend.embedded.device.activate() at the program's start"
        ) from error


def _is_composite(op: torch._ops.OpOverload) -> bool:
    """Whether PyTorch expresses ``op`` by other ops before any device sees it."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


def _register_kernels() -> None:
    from backend.embedded import autocast, cells, dynamic, scaling, shifts, stateful  # noqa: F401  (they enter their kernels)
    from backend.embedded.fallback import fallback, kernel_of, written_forms
    from backend.embedded.generator import driven
    from backend.embedded.kernels import KERNELS
    from backend.embedded.lower import TABLE
    from backend.embedded.untraced import untraced

    library = torch.library.Library("aten", "IMPL")
    registered: set[str] = set()

    def register(op: torch._ops.OpOverload, run: Any) -> None:
        if op.name() not in registered and not _is_composite(op):
            registered.add(op.name())
            library.impl(op, untraced(run), "PrivateUse1")

    with warnings.catch_warnings():
        # PyTorch warns where a device replaces a kernel that works for any device: that is the intent.
        warnings.simplefilter("ignore", UserWarning)
        for op, run in KERNELS.items():
            register(op, driven(op, run))
        for op in list(TABLE):
            # Views and copies are torch's business: it makes them from the kernels above.
            if op.is_view or op in _LEFT_TO_TORCH or op.namespace != "aten":
                continue
            for form in (op, *written_forms(op)):
                found = kernel_of(form)
                if found is not None:
                    register(form, found)
        for key in ("Conjugate", "Negative"):
            # Copying is how PyTorch carries a noted conjugation out: it must not ask for that in turn.
            library.impl("_copy_from", torch.library.fallthrough_kernel, key)
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(untraced(fallback), "PrivateUse1")
    _libraries.extend((library, everything, *autocast.register()))


_aten = torch.ops.aten
_LEFT_TO_TORCH = {
    _aten.clone.default,
    _aten.copy.default,
    _aten._to_copy.default,
    _aten._unsafe_view.default,
    _aten.lift.default,
    _aten.lift_fresh.default,
    _aten.lift_fresh_copy.default,
    _aten.reshape.default,
    _aten.zeros.default,
    _aten.ones.default,
    _aten.zeros_like.default,
    _aten.ones_like.default,
    _aten.empty_like.default,
    _aten.full.default,
    _aten.full_like.default,
    _aten.scalar_tensor.default,
    _aten.rand.default,
    _aten.randn.default,
}


def _pickle_through_cpu() -> None:
    """``torch.save`` and ``copy.deepcopy`` of a device tensor go by way of its CPU copy."""
    original = torch.Tensor._reduce_ex_internal

    def reduce(self: torch.Tensor, proto: int) -> Any:
        if self.device.type != DEVICE_NAME or type(self) not in (torch.Tensor, torch.nn.Parameter):
            return original(self, proto)
        args = (self.detach().cpu(), self.dtype, str(self.device), self.requires_grad)
        return torch._utils._rebuild_device_tensor_from_cpu_tensor, args

    torch.Tensor._reduce_ex_internal = reduce  # type: ignore[method-assign]
