"""A sampled launch keeps as many blocks on a multiprocessor as the plain one, where that takes no spilled registers."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlane.chip import load as load_chip
from memlane.compile import assemble
from memlane.emulate import Emulator
from memlane.errors import MissingDependency
from memlane.instrument import Sampling, TraceOptions
from memlane.launch import LoadedModule
from memlane.measure.instrumented_module import InstrumentedModule, probe, usage_of
from memlane.ptx import once_for_each, parse

PTX = Path(__file__).parents[2] / "examples" / "ptx"
SAMPLED = TraceOptions(sampling=Sampling(every=32), tagged=True)


@once_for_each
def _assembled(loaded: LoadedModule) -> bytes:
    return assemble(loaded.module).data


class WithAssembler(Emulator):
    """An emulator that also has the code that a GPU would load."""

    def assembled(self, loaded: LoadedModule) -> bytes | None:
        try:
            return _assembled(loaded)
        except MissingDependency as absent:
            pytest.skip(str(absent))


def probed(text: str, options: TraceOptions) -> InstrumentedModule:
    return probe(WithAssembler(load_chip("h200")).load(parse(text, "kernels.ptx")), options)


def limits(made: InstrumentedModule) -> dict[str, int]:
    """By the plain name of a kernel: its limit of registers."""
    found = {}
    for one in made.loaded.module.kernels.values():
        for text in one.attributes:
            if text.startswith(".maxnreg"):
                found[one.title.partition("<")[0].split()[-1]] = int(text.split()[1])
    return found


def test_kernels_that_would_hold_fewer_blocks_are_limited() -> None:
    made = probed((PTX / "reduction.ptx").read_text(), SAMPLED)
    assert limits(made) == {"interleaved": 32}
    assert made.traced.module.kernels.keys() == made.loaded.module.kernels.keys()
    usage, plain = usage_of(made.loaded), usage_of(made.original)
    assert usage is not None
    assert plain is not None
    assert {one.local_bytes for one in usage.values()} == {0}
    for name, one in usage.items():
        assert one.registers <= 32 or plain[name].registers > 32


def test_a_kernel_that_would_spill_keeps_its_registers() -> None:
    made = probed((PTX / "matmul.ptx").read_text(), SAMPLED)
    usage = usage_of(made.loaded)
    assert usage is not None
    assert limits(made) == {}
    assert [(one.registers > 40, one.local_bytes) for one in usage.values()] == [(True, 0)]


def test_one_that_spills_does_not_keep_another_from_its_limit() -> None:
    both = (PTX / "reduction.ptx").read_text()
    body = (PTX / "matmul.ptx").read_text()
    start = body.index(".visible .entry")
    made = probed(both + "\n" + body[start : body.rindex("}") + 1], SAMPLED)
    assert limits(made) == {"interleaved": 32}


@pytest.mark.parametrize("directive", [".maxnreg 48", ".maxntid 256\n.minnctapersm 4"])
def test_what_the_programmer_says_of_registers_stays(directive: str) -> None:
    text = (PTX / "reduction.ptx").read_text()
    heads = [line for line in text.splitlines() if "interleaved" in line and ".entry" in line]
    assert heads
    text = text.replace("\n)\n{", f"\n)\n{directive}\n{{")
    assert all(one.attributes.count(".maxnreg 32") == 0 for one in probed(text, SAMPLED).loaded.module.kernels.values())


def test_a_trace_of_all_warps_is_not_limited() -> None:
    assert limits(probed((PTX / "reduction.ptx").read_text(), TraceOptions(tagged=True))) == {}


def test_a_target_without_assembled_code_has_no_limits() -> None:
    loaded = Emulator(load_chip("h200")).load(parse((PTX / "reduction.ptx").read_text(), "reduction.ptx"))
    assert limits(probe(loaded, SAMPLED)) == {}
