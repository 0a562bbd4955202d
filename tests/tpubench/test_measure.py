"""The measuring loop against a backend and a clock that do exactly what a test says."""

import gc
import subprocess
import sys

import pytest
from records import make_spec

from tpubench import measure
from tpubench.measure import NeverSettled, Samples, time_steps, warm_up


class Clock:
    """Nanoseconds that pass only where a test says so."""

    now = 0

    def perf_counter_ns(self):
        return self.now


class Loss:
    """Costs a second to read; counts who does."""

    def __init__(self, clock, value):
        self.clock, self.value, self.reads = clock, value, 0

    def __float__(self):
        self.clock.now += 10**9
        self.reads += 1
        return self.value


class Backend:
    """Each call takes 3 ns and leaves 5 ns of work; ``compiles[i]`` programs are compiled in step ``i``."""

    def __init__(self, clock, compiles=(), launches=None):
        self.clock, self.compiles, self.launches = clock, list(compiles), launches
        self.steps = self.compiled = self.launched = self.pending = 0
        self.losses, self.waited_for, self.collecting = [], [], []
        self.fail_at = None

    def run(self):
        if self.steps == self.fail_at:
            raise ValueError("not today")
        self.collecting.append(gc.isenabled())
        self.clock.now += 3
        self.pending += 5
        if self.steps < len(self.compiles):
            self.compiled += self.compiles[self.steps]
        self.launched += 7
        self.steps += 1
        self.losses.append(Loss(self.clock, float(self.steps)))
        return self.losses[-1]

    def live(self):
        return iter(("weight", "gradient"))

    def synchronize(self, outputs):
        result, live = outputs
        self.waited_for.append((result, list(live)))
        self.clock.now += self.pending
        self.pending = 0

    def compile_count(self):
        return self.compiled

    def counters(self):
        return {} if self.launches is None else {"launches": self.launched}


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(measure.time, "perf_counter_ns", clock.perf_counter_ns)
    return clock


def warm(backend, **fields):
    samples, said = Samples(), []
    warm_up(backend, backend.run, backend.live, make_spec(**fields), lambda *what: said.append(what), samples)
    return samples, said


def timed(backend, samples=None, **fields):
    samples = samples or Samples()
    time_steps(backend, backend.run, backend.live, make_spec(**fields), samples)
    return samples


@pytest.mark.parametrize(
    ("compiles", "least", "steps"),
    [
        ([], 0, 2),  # nothing ever compiles: two steps to see it
        ([], 3, 3),
        ([], 7, 7),
        ([9], 0, 3),  # the usual: all in the first step
        ([9, 0, 1], 3, 5),  # one late program starts the count anew
        ([9, 0, 1, 0, 1], 3, 7),
        ([1, 1, 1, 1, 1, 1], 3, 8),
    ],
)
def test_warm_up_ends_when_the_compile_count_stood_still_for_two_steps(clock, compiles, least, steps):
    samples, said = warm(Backend(clock, compiles), warmup_min=least)
    assert len(samples.warmup_s) == steps
    assert said == [("warmup", i, 8e-9) for i in range(steps)]


@pytest.mark.parametrize("compiles", [[1] * 20, [1, 0] * 10, [1] * 19 + [0]])
def test_a_warm_up_that_never_settles_is_an_error_and_keeps_its_steps(clock, compiles):
    backend, samples = Backend(clock, compiles), Samples()
    with pytest.raises(
        NeverSettled, match=r"warm-up never settled: something was still compiled in the last 2 of its 20"
    ):
        warm_up(backend, backend.run, backend.live, make_spec(), lambda *_: None, samples)
    assert backend.steps == len(samples.warmup_s) == 20


def test_one_that_settles_in_its_last_step_is_none(clock):
    samples, _ = warm(Backend(clock, [1] * 18))
    assert len(samples.warmup_s) == 20


def test_a_steps_clock_runs_until_the_device_is_done_and_its_dispatch_until_the_host_is_free(clock):
    samples = timed(Backend(clock), steps=4)
    assert samples.dispatch_s == [3e-9] * 4 and samples.step_s == [8e-9] * 4


def test_each_step_waits_for_its_result_and_for_everything_it_may_write(clock):
    backend = Backend(clock)
    timed(backend, steps=3)
    assert [result for result, _ in backend.waited_for] == backend.losses
    assert all(live == ["weight", "gradient"] for _, live in backend.waited_for)


def test_the_first_losses_are_read_when_their_clock_has_stopped_and_none_in_the_timed_steps(clock):
    backend = Backend(clock, [1, 1, 1])
    samples, _ = warm(backend)
    assert samples.losses == [1.0, 2.0, 3.0] and samples.warmup_s == [8e-9] * 5
    timed(backend, samples, steps=4)
    assert [loss.reads for loss in backend.losses] == [1, 1, 1] + [0] * 6
    assert samples.step_s == [8e-9] * 4


def test_inference_keeps_a_copy_of_its_first_output_and_reads_no_loss(clock):
    import torch

    backend = Backend(clock)
    output = torch.zeros(2)

    def run():
        backend.run()
        return output.add_(1)

    samples = Samples()
    warm_up(backend, run, backend.live, make_spec(phase="infer"), lambda *_: None, samples)
    assert samples.losses == [] and samples.first_output.tolist() == [1, 1] and output.tolist() == [3, 3]


def test_what_is_compiled_in_the_timed_steps_is_counted_and_what_was_before_is_not(clock):
    assert timed(Backend(clock, [5, 0, 1, 0, 2]), steps=6).compiled_in_timed == 8
    backend = Backend(clock, [5])
    samples, _ = warm(backend)
    assert timed(backend, samples, steps=6).compiled_in_timed == 0


def test_launches_are_those_of_a_timed_step_and_none_where_nobody_counts(clock):
    backend = Backend(clock, launches=True)
    warm(backend)
    assert timed(backend, steps=5).launches_per_step == 7
    assert timed(Backend(clock), steps=5).launches_per_step is None


@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_in_the_timed_steps_and_then_it_is_as_before(clock, enabled):
    before = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        backend = Backend(clock)
        timed(backend, steps=3)
        assert backend.collecting == [False] * 3 and gc.isenabled() == enabled
        backend.fail_at = backend.steps + 1
        with pytest.raises(ValueError, match="not today"):
            timed(backend, steps=3)
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if before else gc.disable)()


def test_the_steps_before_one_that_fails_are_kept(clock):
    backend, samples = Backend(clock), Samples()
    backend.fail_at = 4
    with pytest.raises(ValueError, match="not today"):
        timed(backend, samples, steps=10)
    assert samples.fields()["step_s"] == [8e-9] * 4


def test_the_loop_itself_needs_no_torch(tmp_path):
    code = "import sys, tpubench.measure; print('torch' in sys.modules)"
    got = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert got.stdout == "False\n", got.stderr
