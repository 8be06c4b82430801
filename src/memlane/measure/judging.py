"""What the assembled code says of what was measured: how complete times are, and which counts are those of the hardware.

The code of a module is read at most once, and a measurement is never lost because it could not be: what cannot be shown is then said, with
the reason, in the place of the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from memlane.chip import Chip
from memlane.compile import architecture, assemble
from memlane.errors import BadLaunch, MemlaneError
from memlane.instrument import SiteExactness, changes, exactness, prove, proved, site_table
from memlane.launch import LoadedModule
from memlane.measure.probed import ProbedModule
from memlane.ptx import Module
from memlane.record import BY_EMULATOR, NOT_CHECKED, NOT_PROVED, PROVED, Exactness, Site

Judge = Callable[[], Mapping[int, Exactness]]

_OLDEST_ASSEMBLED = (7, 5)
"""Compute capability below which no present assembler makes code."""


# -- counts ----------------------------------------------------------------------------------------------------------------------


def judge_of(loaded: LoadedModule) -> Judge:
    """What says, by the numbers of the module's sites, whether counts on its PTX are those of its assembled code."""
    module, read = loaded.module, _reader_of(loaded)

    def judge() -> Mapping[int, Exactness]:
        found = read()
        if isinstance(found, str):
            return {site.id: Exactness(NOT_CHECKED, found) for site in site_table(module).sites}
        return {one.site: Exactness(one.verdict, one.reason, one.assembled, one.merged, one.exact_if_full) for one in found}

    return judge


def merged_sites(loaded: LoadedModule) -> tuple[tuple[int, ...], ...]:
    """The numbers of the sites that the assembler made one access of, a tuple for each such access; empty where the code cannot be read."""
    found = _reader_of(loaded)()
    return () if isinstance(found, str) else tuple(dict.fromkeys(one.merged for one in found if one.merged))


def _reader_of(loaded: LoadedModule) -> Callable[[], tuple[SiteExactness, ...] | str]:
    """What compares the module with its assembled code, or says why it cannot. It does not hold the loaded module."""
    return loaded.once("exactness", lambda: _reader(loaded.module, loaded.target.assembled(loaded), loaded.target.chip))


def _reader(module: Module, assembled: bytes | None, chip: Chip) -> Callable[[], tuple[SiteExactness, ...] | str]:
    @cache
    def read() -> tuple[SiteExactness, ...] | str:
        try:
            return exactness(module, _assembled_for(module, chip) if assembled is None else assembled)
        except Exception as error:  # Whatever it is, the counts are right without it.
            return _why(error)

    return read


def _assembled_for(module: Module, chip: Chip) -> bytes:
    """The module as it would be assembled for a GPU of that chip."""
    if chip.compute_capability < _OLDEST_ASSEMBLED:
        raise BadLaunch(f"there is no assembler for {chip.name}, whose compute capability is {'.'.join(map(str, chip.compute_capability))}")
    return assemble(module, arch=architecture(module, chip.compute_capability)).data


# -- times -----------------------------------------------------------------------------------------------------------------------


def judged_sites(probed: ProbedModule) -> tuple[Site, ...]:
    """The sites of an instrumented module, with what is known of the completeness of their times and how it is known.

    On a GPU that is proved on the code that was loaded; there it is also said which accesses tracing has changed.
    """
    return probed.loaded.once("sites", lambda: _judged(probed))


def _judged(probed: ProbedModule) -> tuple[Site, ...]:
    traced, target = probed.traced, probed.loaded.target
    if target.observes:
        return _with_evidence(traced.sites, BY_EMULATOR)
    code, original = target.assembled(probed.loaded), target.assembled(probed.original)
    if code is None or original is None:
        return _with_evidence(traced.sites, f"{NOT_PROVED}: {target.name} does not hand out the assembled code")
    try:
        proofs = {proof.site: proof for proof in prove(traced, code)}
        changed = {change.site: str(change) for change in changes(probed.original.module, original, traced, code)}
    except Exception as error:  # Whatever it is, the times have been measured and are not to be lost for it.
        return _with_evidence(traced.sites, f"{NOT_PROVED}: {_why(error)}")
    return tuple(
        replace(
            site,
            evidence=PROVED,
            copies=proofs[site.id].copies,
            also_waits=proofs[site.id].also_waits,
            shared_waits=proofs[site.id].shared_waits,
            changed=changed.get(site.id, ""),
        )
        if site.id in proofs
        else site
        for site in proved(traced, tuple(proofs.values()))
    )


def _with_evidence(sites: tuple[Site, ...], evidence: str) -> tuple[Site, ...]:
    return tuple(replace(site, evidence=evidence) if site.scheme else site for site in sites)


def _why(error: Exception) -> str:
    """The first line of the message; of an error that is nobody's mistake but ours, with its kind."""
    line = str(error).partition("\n")[0]
    return line if isinstance(error, MemlaneError) else f"{type(error).__name__}: {line}"
