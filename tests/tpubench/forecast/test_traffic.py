"""Bytes of the instructions of compiled programs, by hand."""

import pytest

from tpubench.forecast import hlo
from tpubench.forecast.traffic import traffic


def instruction_of(body, name, fused=""):
    """``(module, computation, instruction)`` of an entry with those lines."""
    module = hlo.parse(f"HloModule m\n\n{fused}\nENTRY %main (p: f32[8]) -> f32[8] {{\n{body}\n}}\n")
    computation = module.computations["main"]
    return module, computation, computation[name]


@pytest.mark.parametrize(
    ("shape", "nbytes", "space"),
    [
        ("f32[8,128]{1,0:T(8,128)}", 4096, 0),
        ("bf16[8,128]{1,0:T(8,128)(2,1)S(1)}", 2048, 1),
        ("f32[3,5]{1,0:T(8,128)}", 8 * 128 * 4, 0),  # a tile is filled up
        ("f32[100,3]{0,1:T(4,128)}", 4 * 128 * 4, 0),  # minor first: 100 -> 128, 3 -> 4
        ("f32[5]{0:T(256)}", 1024, 0),
        ("s4[16]", 8, 0),
        ("pred[10]", 10, 0),
        ("f8e4m3fn[4,4]{1,0}", 16, 0),
        ("f32[]", 4, 0),
    ],
)
def test_an_array_takes_whole_tiles(shape, nbytes, space):
    body = f"  %x = {shape} parameter(0)\n  ROOT %y = {shape} negate(%x)"
    (array,) = instruction_of(body, "x")[2].shape
    assert (array.nbytes, array.space) == (nbytes, space)


@pytest.mark.parametrize(
    ("line", "moved"),
    [
        ("%y = f32[1024]{0} add(%p, %q)", 3 * 4096),
        ("%y = f32[1024]{0} add(%p, %p)", 2 * 4096),  # read once
        ("%y = f32[1024]{0:S(1)} negate(%p)", 4096),  # the result stays on the chip
        ("%y = (f32[1024]{0:S(1)}, f32[1024]{0}, u32[]{:S(2)}) copy-start(%p)", 4096),
        ("%y = (f32[1024]{0}, f32[1024]{0}, u32[]{:S(2)}) copy-start(%p)", 2 * 4096),
        ("%y = f32[16]{0} dynamic-slice(%p, %i), dynamic_slice_sizes={16}", 64 + 64 + 4),
        ("%y = f32[1024]{0} bitcast(%p)", 0),
        ('%y = f32[1024]{0} custom-call(%p), custom_call_target="ConcatBitcast"', 0),
        ('%y = f32[1024]{0} custom-call(%p), custom_call_target="X64SplitLow"', 2 * 4096),
    ],
)
def test_what_crosses(line, moved):
    body = (
        f"  %p = f32[1024]{{0}} parameter(0)\n  %q = f32[1024]{{0}} parameter(1)\n  %i = s32[] parameter(2)\n  {line}"
    )
    assert traffic(*instruction_of(body, "y")) == moved


SLICED = """%fused (a: f32[100,64], i: s32[]) -> f32[1,64] {
  %a = f32[100,64]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %b = f32[100,64]{1,0} bitcast(%a)
  %s = f32[1,64]{1,0} dynamic-slice(%b, %i, %i), dynamic_slice_sizes={1,64}
  ROOT %n = f32[1,64]{1,0} negate(%s)
}
"""
UPDATED = """%fused (a: f32[100,64], u: f32[1,64], i: s32[]) -> f32[100,64] {
  %a = f32[100,64]{1,0} parameter(0)
  %u = f32[1,64]{1,0} parameter(1)
  %i = s32[] parameter(2)
  ROOT %r = f32[100,64]{1,0} dynamic-update-slice(%a, %u, %i, %i)
}
"""


def test_a_fusion_that_reads_a_slice_is_charged_the_slice():
    body = (
        "  %a = f32[100,64]{1,0} parameter(0)\n  %i = s32[] parameter(1)\n"
        "  ROOT %f = f32[1,64]{1,0} fusion(%a, %i), kind=kLoop, calls=%fused"
    )
    assert traffic(*instruction_of(body, "f", SLICED)) == 256 + 4 + 256


def test_a_fusion_that_updates_in_place_is_charged_the_update():
    body = (
        "  %a = f32[100,64]{1,0} parameter(0)\n  %u = f32[1,64]{1,0} parameter(1)\n  %i = s32[] parameter(2)\n"
        "  ROOT %f = f32[100,64]{1,0} fusion(%a, %u, %i), kind=kLoop, calls=%fused"
    )
    assert traffic(*instruction_of(body, "f", UPDATED)) == 256 + 4 + 256
