"""What the assembled code says of what was measured: how complete times are, and which counts are those of the hardware.

The code of a module is read at most once, and a measurement is never lost because it could not be: what cannot be shown is then said, with
the reason, in the place of the verdict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cache

from memlane.audit import SiteProof, access_changes, exactness, prove, proved_sites
from memlane.chip import Chip
from memlane.compile import architecture, assemble, assembler_version
from memlane.emulate.code.store import Entry, Sources, digest, keep, present_store
from memlane.errors import BadLaunch, MemlaneError
from memlane.instrument import site_table
from memlane.launch import LoadedModule, stage
from memlane.measure.probed import ProbedModule
from memlane.ptx import Module, once_for_each, print_module
from memlane.record import BY_EMULATOR, NOT_CHECKED, NOT_PROVED, PROVED, Exactness, Site
from memlane.sass import disassembler_version

Verdicts = Mapping[int, Exactness]
"""By the number of a site."""
Judge = Callable[[], Verdicts]

_DECIDING = Sources(
    *("audit", "chip", "compile", "instrument", "launch", "measure/judging.py", "plan", "ptx", "record", "sass"),
    *("checks.py", "errors.py", "number_format.py", "packages.py", "source.py", "titles.py", "walks.py"),
)
"""What of memlane's own code decides verdicts."""

_OLDEST_ASSEMBLED = (7, 5)
"""Compute capability below which no present assembler makes code."""


# -- counts ----------------------------------------------------------------------------------------------------------------------


def judge_of(loaded: LoadedModule) -> Judge:
    """What says, by the numbers of the module's sites, whether counts on its PTX are those of its assembled code."""
    module, read = loaded.module, _reader_of(loaded)

    def judge() -> Verdicts:
        found = read()
        if isinstance(found, str):
            return {site.id: Exactness(NOT_CHECKED, found) for site in site_table(module).sites}
        return found

    return judge


def merged_sites(loaded: LoadedModule) -> tuple[tuple[int, ...], ...]:
    """The numbers of the sites that the assembler made one access of, a tuple for each such access; empty where the code cannot be read."""
    found = _reader_of(loaded)()
    return () if isinstance(found, str) else tuple(dict.fromkeys(one.merged for one in found.values() if one.merged))


@once_for_each
def _reader_of(loaded: LoadedModule) -> Callable[[], Verdicts | str]:
    """What compares the module with its assembled code, or says why it cannot. It does not hold the loaded module."""
    return _reader(loaded.module, loaded.target.assembled(loaded), loaded.target.chip)


def _reader(module: Module, assembled: bytes | None, chip: Chip) -> Callable[[], Verdicts | str]:
    @cache
    def read() -> Verdicts | str:
        try:
            return _verdicts(module, assembled, chip)
        except Exception as error:  # Whatever it is, the counts are right without it.
            return _why(error)

    return read


def _verdicts(module: Module, assembled: bytes | None, chip: Chip) -> Verdicts:
    """The verdict on each site: from the store, or else worked out and kept there. `assembled` is None where nothing was assembled."""
    store, arch = present_store(), "" if assembled is not None else _arch_for(module, chip)
    if store is None or not _DECIDING.digest:
        return _worked_out(module, assembled, arch)
    # The text decides the code, as far as the assembler is the same; on a GPU the code is there already.
    code = f"{arch} {assembler_version()}" if assembled is None else hashlib.sha256(assembled).hexdigest()
    key = digest("verdicts", _DECIDING.digest, print_module(module), code, disassembler_version())
    entry = store.get(key)
    if entry is None:
        found = _worked_out(module, assembled, arch)
        keep(key, Entry({"verdicts": [[site, *astuple(one)] for site, one in found.items()]}, b""), _DECIDING)
        return found
    return {
        site: Exactness(verdict, reason, made, tuple(merged), if_full)
        for site, verdict, reason, made, merged, if_full in entry.facts["verdicts"]
    }


def _worked_out(module: Module, assembled: bytes | None, arch: str) -> Verdicts:
    with stage("comparing with the assembled code"):
        found = exactness(module, assemble(module, arch=arch).data if assembled is None else assembled)
    return {one.site: Exactness(one.verdict, one.reason, one.assembled, one.merged, one.exact_if_full) for one in found}


def _arch_for(module: Module, chip: Chip) -> str:
    """What the module would be assembled for on a GPU of that chip."""
    if chip.compute_capability < _OLDEST_ASSEMBLED:
        raise BadLaunch(f"there is no assembler for {chip.name}, whose compute capability is {'.'.join(map(str, chip.compute_capability))}")
    return architecture(module, chip.compute_capability)


# -- times -----------------------------------------------------------------------------------------------------------------------


def judged_sites(probed: ProbedModule) -> tuple[Site, ...]:
    """The sites of an instrumented module, with what is known of the completeness of their times and how it is known.

    On a GPU that is proved on the code that was loaded; there it is also said which accesses tracing has changed.
    """
    known = _known_sites(probed.loaded)
    if not known:
        known.append(_judged(probed))
    return known[0]


@once_for_each
def _known_sites(loaded: LoadedModule) -> list[tuple[Site, ...]]:
    """The judged sites of a twin, if they are known: they are the same whichever windows it is lent for."""
    return []


def _judged(probed: ProbedModule) -> tuple[Site, ...]:
    traced, target = probed.traced, probed.loaded.target
    if target.observes:
        return _with_evidence(traced.sites, BY_EMULATOR)
    code, original = target.assembled(probed.loaded), target.assembled(probed.original)
    if code is None or original is None:
        return _with_evidence(traced.sites, f"{NOT_PROVED}: {target.name} does not expose its assembled code")
    try:
        shown = _shown(probed, code, original)
    except Exception as error:  # Whatever it is, the times have been measured and are not to be lost for it.
        return _with_evidence(traced.sites, f"{NOT_PROVED}: {_why(error)}")
    proofs = {proof.site: proof for proof in shown.proofs}
    return tuple(
        replace(
            site,
            evidence=PROVED,
            copies=proofs[site.id].copies,
            also_waits=proofs[site.id].also_waits,
            shared_waits=proofs[site.id].shared_waits,
            changed=shown.changed.get(site.id, ""),
        )
        if site.id in proofs
        else site
        for site in proved_sites(traced, shown.proofs)
    )


@dataclass(frozen=True)
class _Shown:
    """What the assembled code of an instrumented module shows of its timed sites."""

    proofs: Sequence[SiteProof]
    changed: Mapping[int, str]
    """By the number of a site: how the original accesses memory there, where tracing has changed that."""


def _shown(probed: ProbedModule, code: bytes, original: bytes) -> _Shown:
    """What the code shows: from the store, or else proved and kept there."""
    store = present_store()
    if store is None or not _DECIDING.digest:
        return _proved(probed, code, original)
    key = _key_of_proofs(probed, code, original)
    entry = store.get(key)
    if entry is None:
        found = _proved(probed, code, original)
        facts = {"proofs": [astuple(one) for one in found.proofs], "changed": list(found.changed.items())}
        keep(key, Entry(facts, b""), _DECIDING)
        return found
    proofs = [
        SiteProof(site, completeness, reason, copies, tuple(also), tuple(shared))
        for site, completeness, reason, copies, also, shared in entry.facts["proofs"]
    ]
    return _Shown(proofs, dict(entry.facts["changed"]))


def _key_of_proofs(probed: ProbedModule, code: bytes, original: bytes) -> str:
    """Of all that a proof rests on. What else is known of the sites follows from the original, the options and memlane's own code."""
    traced, options = probed.traced, probed.traced.options
    timed = {kernel: sorted(sites.items()) for kernel, sites in traced.positions.items()}
    how = repr((options.scheme, options.stores, options.staging, options.sampling, timed))
    texts = print_module(probed.original.module), print_module(traced.module), how
    codes = (hashlib.sha256(one).hexdigest() for one in (code, original))
    return digest("proofs", _DECIDING.digest, *texts, *codes, disassembler_version())


def _proved(probed: ProbedModule, code: bytes, original: bytes) -> _Shown:
    traced = probed.traced
    with stage("proving on the assembled code that times are complete"):
        proofs = prove(traced, code)
    changed = {change.site: str(change) for change in access_changes(probed.original.module, original, traced, code)}
    return _Shown(proofs, changed)


def _with_evidence(sites: tuple[Site, ...], evidence: str) -> tuple[Site, ...]:
    return tuple(replace(site, evidence=evidence) if site.scheme else site for site in sites)


def _why(error: Exception) -> str:
    """The first line of the message; of an error that is nobody's mistake but ours, with its kind."""
    line = str(error).partition("\n")[0]
    return line if isinstance(error, MemlaneError) else f"{type(error).__name__}: {line}"
