"""Every sample of one entry of PyTorch's OpInfo database (``torch.testing._internal``), to one row."""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tpubench.failure import one_line
from tpubench.ops.coverage import Outcome, Row
from tpubench.ops.latitude import HOST_ARGUMENTS, settled
from tpubench.ops.sample import Mismatch, arguments, compare, gradients, spread

#: Ops that promise memory and no values.
_UNINITIALISED = ("empty", "new_empty", "resize_")
#: In-place samples an entry: they take the same lowering as the rest.
_IN_PLACE = 3


def name_of(op: Any) -> str:
    """``name`` or ``name.variant``."""
    return f"{op.name}.{op.variant_test_name}" if op.variant_test_name else str(op.name)


def entries(patterns: Sequence[str], dtype: torch.dtype) -> Iterator[Any]:
    """The database's entries with ``dtype`` whose name matches one of ``patterns`` (all: none given)."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        name = name_of(op)
        if dtype in op.dtypes and (not patterns or any(fnmatch.fnmatchcase(name, p) for p in patterns)):
            yield op


class _Draws(TorchDispatchMode):
    """Notes whether an op that draws random numbers ran."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drew = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.drew |= torch.Tag.nondeterministic_seeded in func.tags or func.overloadpacket in _DRAWING
        return func(*args, **(kwargs or {}))


_aten = torch.ops.aten
#: Drawing ops without PyTorch's tag.
_DRAWING = {_aten.uniform_, _aten.normal_, _aten.exponential_, _aten.random_, _aten.bernoulli_}


class _Tally:
    """The row as it grows: the first failure is what it tells."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.device = ""
        self.compared: set[str] = set()

    def one(self, op: Any, sample: Any, backward: bool) -> None:
        """Run one sample; an error of the CPU's own passes it over."""
        given, args, named = arguments(sample, "cpu")
        try:
            with _Draws() as draws:
                expected = sample.output_process_fn_grad(op(given, *args, **named))
            wanted = gradients(expected, (given, args, named)) if backward else []
        except Exception:
            return
        values = not draws.drew and not op.name.startswith(_UNINITIALISED)
        self.compared.add("values" if values else "shapes")

        def wide() -> Any:
            x, rest, kwargs = arguments(sample, "cpu", wide=True)
            result = sample.output_process_fn_grad(op(x, *rest, **kwargs))
            return result if stage == "forward" else gradients(result, (x, rest, kwargs))

        stage = "forward"
        there, args, named = arguments(sample, self.device, on_host=op.name in HOST_ARGUMENTS)
        got = sample.output_process_fn_grad(op(there, *args, **named))
        compare(*settled(op.name, got, expected, arguments(sample, "cpu")), values, wide)
        self.row.forward += 1
        if backward and wanted:
            stage = "backward"
            compare(gradients(got, (there, args, named)), wanted, values, wide)
            self.row.backward += 1

    def in_place(self, change: Any, sample: Any) -> None:
        """Run the in-place form on one sample."""
        given, args, named = arguments(sample, "cpu")
        there, args_there, named_there = arguments(sample, self.device)
        with torch.no_grad():
            try:
                with _Draws() as draws:
                    expected = change(given, *args, **named)
            except Exception:
                return
            got = change(there, *args_there, **named_there)

        def wide() -> Any:
            x, rest, kwargs = arguments(sample, "cpu", wide=True)
            with torch.no_grad():
                return change(x, *rest, **kwargs)

        compare(got, expected, not draws.drew, wide)
        self.row.in_place += 1


def survey(op: Any, dtype: torch.dtype, device: str, limit: int) -> Row:
    """The row of one entry: ``limit`` samples (0: all) on ``device``, forward and, where it has one, backward."""
    row = Row(name_of(op), str(dtype).removeprefix("torch."))
    tally = _Tally(row)
    tally.device = device
    backward = bool(op.supports_autograd) and dtype in op.supported_backward_dtypes("cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            samples = list(op.sample_inputs("cpu", dtype, requires_grad=backward))
        except Exception as error:
            return row.ended(Outcome.UNTESTED, f"OpInfo gives no samples: {one_line(error)}")
        chosen = spread(samples, limit)
        change = op.get_inplace()
        for place, sample in enumerate(chosen):
            try:
                tally.one(op, sample, backward)
                row.compared = ", ".join(sorted(tally.compared, reverse=True))
                if change is not None and row.in_place < _IN_PLACE and not sample.broadcasts_input:
                    tally.in_place(change, sample)
            except Mismatch as error:
                row.absolute, row.relative = error.absolute, error.relative
                return row.ended(Outcome.WRONG, f"sample {place}: {error}")
            except NotImplementedError as error:
                return row.ended(Outcome.NOT_LOWERED, _missing(error))
            except Exception as error:
                if type(error).__name__ == "DtypeNotSupported":
                    return row.ended(Outcome.NOT_LOWERED, one_line(error))
                return row.ended(Outcome.ERROR, f"sample {place}: {type(error).__name__}: {one_line(error)}")
    if not row.forward:
        return row.ended(Outcome.UNTESTED, "no sample that the CPU itself runs")
    return row.ended(Outcome.PASSED, "")


def _missing(error: NotImplementedError) -> str:
    """The op that has no lowering, or what else was refused."""
    return getattr(error, "op", None) or one_line(error)
