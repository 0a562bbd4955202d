"""Captured graphs on disk: what AOTAutograd makes of a model is kept beside its programs.

A program from disk spares XLA's work, not PyTorch's: decomposing a graph and splitting it into forward and backward
takes seconds for a large model. PyTorch's own AOTAutogradCache keeps its result, where the backend's part of it can be
pickled (``OutputCode``, private to PyTorch as of 2.13). Ours is a graph with a name; its executables are found on disk
by :mod:`backend.embedded.disk` as ever. What Dynamo does before, capturing the Python code, PyTorch cannot keep
without dropping guards, so that is done anew in each process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache
from torch._inductor.output_code import OutputCode

from backend.embedded import disk
from backend.embedded.identity import NoKey, graph_text, key, known
from backend.embedded.interpreter import Interpreter
from backend.embedded.lower import TABLE

if TYPE_CHECKING:
    from backend.embedded.compiler import GraphProgram

#: Where PyTorch's cache lies, as it reads it; and our folder for it in the cache's.
_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
SUBFOLDER = "graphs"
#: The share of the cache's bytes that graphs may take.
_SHARE = 1 / 8


@dataclasses.dataclass(slots=True)
class SavedGraph:
    """A graph as far as it is needed where every program of it is on disk, and all of it pickled.

    ``digest`` stands for the graph in keys, None where it has no key. ``written`` are the places of the inputs that
    the graph writes, in the order of its results.
    """

    random: bool
    written: tuple[int, ...]
    digest: str | None
    pickled: bytes | None = None
    live: torch.fx.GraphModule | None = None

    @classmethod
    def of(cls, interpreter: Interpreter) -> SavedGraph:
        """What there is to say of the graph that ``interpreter`` runs."""
        digest = None
        if disk.current() is not None:
            with contextlib.suppress(NoKey):
                known(*(lowering.function for lowering in interpreter.lowerings.values()))
                digest = hashlib.sha256(graph_text(interpreter.module).encode()).hexdigest()
        return cls(interpreter.random, tuple(interpreter.written), digest, live=interpreter.module)

    def text(self) -> str:
        """What stands for the graph in a program's key.

        Raises:
            NoKey: it has none.
        """
        if self.digest is None:
            raise NoKey("the graph")
        return self.digest

    def module(self) -> torch.fx.GraphModule:
        """The graph itself."""
        if self.live is None:
            from torch._subclasses import FakeTensorMode
            from torch.fx._graph_pickler import GraphPickler
            from torch.fx.experimental.symbolic_shapes import ShapeEnv

            assert self.pickled is not None
            loaded = GraphPickler.loads(self.pickled, FakeTensorMode(shape_env=ShapeEnv()))
            assert isinstance(loaded, torch.fx.GraphModule)
            self.live = loaded
        return self.live

    def frozen(self) -> SavedGraph:
        """A copy that can be pickled.

        Raises:
            NoKey: the graph's programs could not be found again, or would not follow a change of a lowering.
        """
        from torch.fx._graph_pickler import GraphPickler, Options

        self.text()
        pickled = self.pickled
        if pickled is None:
            module = self.module()
            for node in module.graph.nodes:
                # Where a node came from is of no use to a program, and refers to the user's objects.
                node.meta = {name: value for name, value in node.meta.items() if name == "val"}
            pickled = GraphPickler.dumps(module, Options(ops_filter=None))
        return dataclasses.replace(self, pickled=pickled, live=None)


@dataclasses.dataclass
class GraphCode(OutputCode):
    """A graph's program as AOTAutograd calls, pickles and finds it."""

    name: str = ""
    saved: SavedGraph | None = None
    program: GraphProgram | None = None

    @classmethod
    def of(cls, program: GraphProgram) -> GraphCode:
        """The code of a program just made."""
        code = cls(program.name, program.saved, program)
        code._boxed_call = True  # type: ignore[attr-defined]
        return code

    def __call__(self, inputs: Any) -> Any:
        """Run; AOTAutograd hands over its only reference to what backward no longer needs."""
        taken = tuple(inputs)
        inputs.clear()
        assert self.program is not None
        return self.program(*taken)

    def prepare_for_serialization(self) -> None:
        """Keep what can be pickled; PyTorch calls it on a copy.

        Raises:
            BypassAOTAutogradCache: the graph cannot be kept, which is no fault.
        """
        assert self.saved is not None
        try:
            self.saved, self.program = self.saved.frozen(), None
        except NoKey as error:
            raise BypassAOTAutogradCache(str(error)) from error

    def post_compile(self, example_inputs: Sequence[Any], constants: Any, graph_kwargs: Any) -> None:
        """Be ready to be called, just made or just read."""
        if self.program is None:
            from backend.embedded.compiler import GraphProgram

            assert self.saved is not None
            self.program = GraphProgram(self.saved, self.name)

    def set_triton_bundle(self, triton_bundle: Any) -> None:
        """There is no Triton in it."""


@contextlib.contextmanager
def kept_graphs() -> Iterator[None]:
    """AOTAutograd finds and keeps its results in our cache while this is open; without a cache it keeps none."""
    kept = disk.current()
    patch = torch._functorch.config.patch
    name = _folder_name() if kept is not None and kept.closed is None else None
    if kept is None or name is None:
        with patch(enable_autograd_cache=False):
            yield
        return
    folder = kept.folder.parent / SUBFOLDER
    _trimmed(folder, int(kept.limit * _SHARE))
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = str(folder / name)
    try:
        # The backward graph is kept with the forward one, so that it has to be split off at once.
        with patch(enable_autograd_cache=True, bundled_autograd_cache=True, force_non_lazy_backward_lowering=True):
            yield
    finally:
        if before is None:
            os.environ.pop(_VARIABLE, None)
        else:
            os.environ[_VARIABLE] = before


def _folder_name() -> str | None:
    """What AOTAutograd's keys know nothing of: our decompositions, versions and settings. None: graphs have no key.

    A lowering of somebody else's is no part of it, and a graph from disk would not know of that.
    """
    try:
        known(*(lowering.function for lowering in TABLE.values()))
        return key("graphs")[:32]
    except NoKey:
        return None


def import_ahead() -> None:
    """Import what PyTorch otherwise imports at the first capture: it belongs to a process's start, not to a step.

    Most of it is Inductor, which Dynamo and AOTAutograd's keys look at whatever the backend.
    """
    with contextlib.suppress(ImportError, AttributeError):
        from torch._dynamo.backends import registry
        from torch._inductor.codegen import common

        registry.list_backends()  # imports all of them
        common.init_backend_registration()


@functools.cache
def _trimmed(folder: Path, limit: int) -> None:
    """Once a process: remove the oldest graphs where they take more than ``limit`` bytes."""
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            stat = path.stat()
            if path.is_file():
                found.append((stat.st_mtime, path, stat.st_size))
    total = sum(size for _, _, size in found)
    for _, path, size in sorted(found):
        if total <= limit:
            return
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size
