"""One row a run: what was asked, what was measured, and on what."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import Any

from tpubench.spec import Spec

# Version history of the record's schema. A reader takes every version up to its own.
#   1  2026-12  the first.
#   2  2026-12  a program found on disk is no compile_miss, which version 1 could not tell apart; disk_s, its bytes
#               and faults.
#   3  2026-12  the optimizer and where the data are became options: optimizer, data. parameter_count,
#               activation_bytes, bytes_moved.
SCHEMA_VERSION = 3


class Status(StrEnum):
    """How a run ended. Only ``ok`` rows carry numbers that compare uses."""

    OK = "ok"
    OOM = "oom"
    TIMEOUT = "timeout"
    ERROR = "error"
    UNSUPPORTED = "unsupported"  # this backend cannot do this mode here: `reason` says why
    RECOMPILED = "recompiled"  # something compiled in the timed region: numbers withheld
    MISMATCHED = "mismatched"  # the loss disagrees with the reference: numbers withheld
    SKIPPED = "skipped"


@dataclasses.dataclass(slots=True)
class Record:
    """One run of one cell. Times in seconds, memory in bytes, money in US dollars.

    ``None`` means not measured; where a user would ask why, a ``*_reason`` field answers.
    """

    # -- which run -------------------------------------------------------------------------------
    schema: int
    run_id: str  # unique: <created, compact>-<fingerprint>
    created: str  # ISO 8601, UTC
    fingerprint: str
    # -- what was asked: the fields of Spec --------------------------------------------------------
    workload: str
    size: str
    backend: str
    mode: str
    batch: int
    device: str
    dtype: str
    phase: str
    optimizer: str
    data: str
    seq_len: int | None
    cache: str
    mesh: str
    seed: int
    steps: int
    warmup_min: int
    warmup_max: int
    cpu_fallback: bool
    # -- how it ended ------------------------------------------------------------------------------
    status: str
    reason: str | None = None  # why the status is not ok, one line
    error_class: str | None = None
    error_output: str | None = None  # the last lines the worker printed
    exit_signal: int | None = None
    warnings: list[str] = dataclasses.field(default_factory=list)
    # -- time --------------------------------------------------------------------------------------
    step_s: list[float] = dataclasses.field(default_factory=list)  # every timed step, synchronised
    dispatch_s: list[float] = dataclasses.field(default_factory=list)  # of it, until the host was free
    warmup_s: list[float] = dataclasses.field(default_factory=list)  # every warm-up step, in order
    first_step_s: float | None = None  # warmup_s[0]
    warmup_overhead_s: float | None = None  # sum(warmup_s) - len(warmup_s) * step_median_s
    step_median_s: float | None = None
    step_ci_low_s: float | None = None  # 95 % confidence interval of the median
    step_ci_high_s: float | None = None
    device_s: float | None = None  # a step's time with an op running, from a short trace after the timed steps
    device_s_reason: str | None = None  # what it was taken from, or why there is none
    item: str | None = None  # what throughput counts: image, token, sample
    items_per_step: float | None = None
    items_per_s: float | None = None
    # -- compiling -----------------------------------------------------------------------------------
    compile_requests: int | None = None  # lookups in the in-memory cache of executables, whole run
    compile_hits: int | None = None
    compile_misses: int | None = None  # programs compiled; a request that is neither was found on disk
    compile_s: float | None = None
    disk_requests: int | None = None  # lookups in the cache on disk, of programs not yet in memory
    disk_hits: int | None = None
    disk_misses: int | None = None
    disk_s: float | None = None  # reading, loading and writing programs
    disk_read_bytes: int | None = None
    disk_written_bytes: int | None = None
    disk_rejected: int | None = None  # entries torn or altered: thrown away, compiled anew
    disk_unwritten: int | None = None  # programs that could not be kept
    compile_scope: str | None = None  # what is compiled together: op | forward+backward | ...
    launches_per_step: float | None = None  # executables launched a timed step, where the backend counts
    graphs: int | None = None
    graph_breaks: int | None = None
    cpu_fallbacks: int | None = None  # ops run on the CPU because they have no lowering
    cpu_fallback_ops: list[str] = dataclasses.field(default_factory=list)
    # -- memory --------------------------------------------------------------------------------------
    peak_memory_bytes: int | None = None
    peak_memory_kind: str | None = None  # device | host-rss (whole process, imports and compiler included)
    parameter_count: int | None = None
    parameter_bytes: int | None = None
    activation_bytes: int | None = None  # kept from forward for backward by eager autograd: an estimate from shapes
    # -- work and accounting -------------------------------------------------------------------------
    model_flops: float | None = None  # a step's, counted op by op on meta tensors
    analytic_flops: float | None = None  # a step's, by the workload's formula
    bytes_moved: float | None = None  # a step's, by the workload's formula: every operand read or written once
    flops_convention: str | None = None
    achieved_tflops: float | None = None
    achieved_gbps: float | None = None  # bytes_moved over the step time, GB/s
    chip: str | None = None
    chips: int | None = None
    peak_tflops: float | None = None  # one chip's dense peak at the dtype used
    peak_source: str | None = None
    mfu: float | None = None  # 0 to 1
    mfu_reason: str | None = None
    peak_gbps: float | None = None  # of one chip's memory
    peak_gbps_source: str | None = None
    roofline: float | None = None  # the least time that peak and bandwidth allow, over the step time
    bound_by: str | None = None  # compute | memory: which of the two is that least time
    roofline_reason: str | None = None
    host_s_per_op: float | None = None  # where items are ops: until the host was free
    device_s_per_op: float | None = None
    usd_per_chip_hour: float | None = None
    price_source: str | None = None  # provider, source and date
    usd_per_step: float | None = None
    usd_per_million_items: float | None = None
    cost_reason: str | None = None
    # -- correctness ---------------------------------------------------------------------------------
    correctness: str | None = None  # matched | mismatched | not checked
    correctness_detail: str | None = None  # what was compared, how far apart, within what
    losses: list[float] = dataclasses.field(default_factory=list)  # of the first warm-up steps
    reference_losses: list[float] = dataclasses.field(default_factory=list)
    # -- on what -------------------------------------------------------------------------------------
    matmul_precision: str | None = None  # what a float32 matmul really multiplies in
    device_name: str | None = None
    tpubench_version: str | None = None
    python_version: str | None = None
    torch_version: str | None = None
    jax_version: str | None = None
    libtpu_version: str | None = None
    host: str | None = None
    cpu_model: str | None = None
    cpu_count: int | None = None
    threads: int | None = None
    os: str | None = None

    @classmethod
    def of(cls, spec: Spec, *, run_id: str, created: str, status: Status, **fields: Any) -> Record:
        """A record of ``spec``.

        Raises:
            TypeError: a name in ``fields`` is no field of the schema.
        """
        return cls(
            schema=SCHEMA_VERSION,
            run_id=run_id,
            created=created,
            fingerprint=spec.fingerprint,
            status=str(status),
            **spec.to_dict(),
            **fields,
        )

    @property
    def spec(self) -> Spec:
        """The cell that this is a run of."""
        return Spec(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Spec)})

    @property
    def ok(self) -> bool:
        """Whether the numbers may be compared."""
        return self.status == Status.OK

    def to_dict(self) -> dict[str, Any]:
        """The fields by name."""
        return dataclasses.asdict(self)
