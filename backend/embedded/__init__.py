"""The embedded backend: PyTorch executed on XLA through PJRT, by a torch device of our own.

The device is called ``pjrt``: after :func:`backend.embedded.device.activate`,
``torch.randn(3, device="pjrt")`` and ``model.to("pjrt")`` work in an unmodified program. A tensor on
it is a plain :class:`torch.Tensor`; sizes, strides and aliasing live in torch, the values live in a
``jax.Array`` that hangs on the tensor's storage.

    device       the torch device: its name and its kernels
    module       what PyTorch asks of a device under ``torch.pjrt``
    buffer       the jax.Array behind a storage
    storage      what PyTorch does to a storage from Python
    layout       reading and writing a buffer through sizes, strides and offset, inside a program
    lower/       ATen ops as JAX functions, by family: one table for every mode
    number       Python numbers among an op's arguments, and which of them are inputs
    signature    what a program depends on
    program      one call of one op as one traceable function
    executable   a compiled program, from disk where it is there, and the quickest way to launch it
    identity     what a program depends on: its name on disk
    disk         programs in a folder that processes share
    graphs       captured graphs in it, by way of AOTAutograd's cache
    oplog, dump  launches as lines and programs as text, for debugging
    cache        the counters a user sees
    mode         the mode of the process
    dispatch     eager mode: an op call to a launch
    blocking     eager-blocking mode: a launch that is waited for
    recording    eager-fused mode: op calls that wait, and are launched as one program
    kernels      the ops that are about storage rather than values
    fallback     ops without a lowering: a named error, or the CPU where the user asked for it
    shifts       shifts in place
    autocast, scaling, generator, seed    mixed precision and random numbers
    compiler     compile mode: the torch.compile backend
    donation     whose memory a compiled graph may take
    host         the part of a graph that lives on the CPU
    whole        a training step as one graph
"""

from backend.embedded.backend import DEVICE_NAME, Embedded
from backend.embedded.errors import OpNotLowered

__all__ = ["DEVICE_NAME", "Embedded", "OpNotLowered"]
