"""Derive verdicts from the SASS: which times are complete, and which counts are those of the hardware.

The SASS of a module is read at most once. An error in reading it never loses a measurement: the reason then replaces the verdict.
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
from memlane.measure.instrumented_module import InstrumentedModule
from memlane.ptx import Module, once_for_each, print_module
from memlane.record import BY_EMULATOR, NOT_CHECKED, NOT_PROVED, PROVED, Exactness, Site
from memlane.sass import disassembler_version

Verdicts = Mapping[int, Exactness]
"""Verdicts on the counts of sites, by site number."""
Judge = Callable[[], Verdicts]

_DECIDING = Sources(
    *("audit", "chip", "compile", "instrument", "launch", "measure/verdicts.py", "plan", "ptx", "record", "sass"),
    *("checks.py", "errors.py", "number_format.py", "packages.py", "source.py", "titles.py", "walks.py"),
)
"""Source files of memlane that determine the verdicts, part of the key of stored ones."""

_OLDEST_ASSEMBLED = (7, 5)
"""Oldest compute capability that current assemblers support."""


# -- counts ----------------------------------------------------------------------------------------------------------------------


def judge_of(loaded: LoadedModule) -> Judge:
    """Return a function that returns, by site number, whether counts on the module's PTX are those of its SASS."""
    module, read = loaded.module, _reader_of(loaded)

    def judge() -> Verdicts:
        found = read()
        if isinstance(found, str):
            return {site.id: Exactness(NOT_CHECKED, found) for site in site_table(module).sites}
        return found

    return judge


def merged_sites(loaded: LoadedModule) -> tuple[tuple[int, ...], ...]:
    """Return for each access that ptxas merged from several the numbers of their sites; empty if the SASS cannot be read."""
    found = _reader_of(loaded)()
    return () if isinstance(found, str) else tuple(dict.fromkeys(one.merged for one in found.values() if one.merged))


@once_for_each
def _reader_of(loaded: LoadedModule) -> Callable[[], Verdicts | str]:
    """Return a function that compares the module with its SASS, or returns why it cannot. It does not keep the loaded module alive."""
    return _reader(loaded.module, loaded.target.assembled(loaded), loaded.target.chip)


def _reader(module: Module, assembled: bytes | None, chip: Chip) -> Callable[[], Verdicts | str]:
    """Return the cached comparison of a module with its SASS."""

    @cache
    def read() -> Verdicts | str:
        try:
            return _verdicts(module, assembled, chip)
        except Exception as error:  # The counts are valid without the verdicts.
            return _why(error)

    return read


def _verdicts(module: Module, assembled: bytes | None, chip: Chip) -> Verdicts:
    """Return the verdict on each site, from the store or else computed and stored. `assembled` is None if nothing was assembled."""
    store, arch = present_store(), "" if assembled is not None else _arch_for(module, chip)
    if store is None or not _DECIDING.digest:
        return _compute_verdicts(module, assembled, arch)
    # The same assembler makes the same code of the same text; on a GPU the code already exists.
    code = f"{arch} {assembler_version()}" if assembled is None else hashlib.sha256(assembled).hexdigest()
    key = digest("verdicts", _DECIDING.digest, print_module(module), code, disassembler_version())
    entry = store.get(key)
    if entry is None:
        found = _compute_verdicts(module, assembled, arch)
        keep(key, Entry({"verdicts": [[site, *astuple(one)] for site, one in found.items()]}, b""), _DECIDING)
        return found
    return {
        site: Exactness(verdict, reason, made, tuple(merged), if_full)
        for site, verdict, reason, made, merged, if_full in entry.facts["verdicts"]
    }


def _compute_verdicts(module: Module, assembled: bytes | None, arch: str) -> Verdicts:
    """Compute the verdict on each site from the SASS, assembled for `arch` if there is none yet."""
    with stage("comparing with the assembled code"):
        found = exactness(module, assemble(module, arch=arch).data if assembled is None else assembled)
    return {one.site: Exactness(one.verdict, one.reason, one.assembled, one.merged, one.exact_if_full) for one in found}


def _arch_for(module: Module, chip: Chip) -> str:
    """Return the architecture that the module would be assembled for on a GPU of that chip. Raises BadLaunch if no assembler supports
    it."""
    if chip.compute_capability < _OLDEST_ASSEMBLED:
        raise BadLaunch(f"there is no assembler for {chip.name}, whose compute capability is {'.'.join(map(str, chip.compute_capability))}")
    return architecture(module, chip.compute_capability)


# -- times -----------------------------------------------------------------------------------------------------------------------


def sites_with_evidence(probed: InstrumentedModule) -> tuple[Site, ...]:
    """Return the sites of an instrumented module with the completeness of their times and the evidence for it.

    On a GPU it is proved on the loaded SASS, which also shows the accesses that tracing has changed.
    """
    known = _known_sites(probed.loaded)
    if not known:
        known.append(_find_evidence(probed))
    return known[0]


@once_for_each
def _known_sites(loaded: LoadedModule) -> list[tuple[Site, ...]]:
    """Return the list that caches the sites with evidence of an instrumented copy: they do not depend on the windows it is borrowed for."""
    return []


def _find_evidence(probed: InstrumentedModule) -> tuple[Site, ...]:
    """Return the sites with completeness and evidence, by the emulator or by a proof on the SASS."""
    traced, target = probed.traced, probed.loaded.target
    if target.observes:
        return _with_evidence(traced.sites, BY_EMULATOR)
    code, original = target.assembled(probed.loaded), target.assembled(probed.original)
    if code is None or original is None:
        return _with_evidence(traced.sites, f"{NOT_PROVED}: {target.name} does not expose its assembled code")
    try:
        shown = _proofs_and_changes(probed, code, original)
    except Exception as error:  # A failed proof must not lose the measured times.
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
class _ProofsAndChanges:
    """Proofs and changes that the SASS of an instrumented module shows for its timed sites."""

    proofs: Sequence[SiteProof]
    changed: Mapping[int, str]
    """How the original accesses memory at a site where tracing has changed that, by site number."""


def _proofs_and_changes(probed: InstrumentedModule, code: bytes, original: bytes) -> _ProofsAndChanges:
    """Return what the SASS shows, from the store or else proved and stored."""
    store = present_store()
    if store is None or not _DECIDING.digest:
        return _prove(probed, code, original)
    key = _key_of_proofs(probed, code, original)
    entry = store.get(key)
    if entry is None:
        found = _prove(probed, code, original)
        facts = {"proofs": [astuple(one) for one in found.proofs], "changed": list(found.changed.items())}
        keep(key, Entry(facts, b""), _DECIDING)
        return found
    proofs = [
        SiteProof(site, completeness, reason, copies, tuple(also), tuple(shared))
        for site, completeness, reason, copies, also, shared in entry.facts["proofs"]
    ]
    return _ProofsAndChanges(proofs, dict(entry.facts["changed"]))


def _key_of_proofs(probed: InstrumentedModule, code: bytes, original: bytes) -> str:
    """Return a key of all that a proof depends on. Other properties of the sites follow from the original, the options and memlane's own
    code."""
    traced, options = probed.traced, probed.traced.options
    timed = {kernel: sorted(sites.items()) for kernel, sites in traced.positions.items()}
    how = repr((options.scheme, options.stores, options.staging, options.sampling, timed))
    texts = print_module(probed.original.module), print_module(traced.module), how
    codes = (hashlib.sha256(one).hexdigest() for one in (code, original))
    return digest("proofs", _DECIDING.digest, *texts, *codes, disassembler_version())


def _prove(probed: InstrumentedModule, code: bytes, original: bytes) -> _ProofsAndChanges:
    """Prove on the SASS that times are complete, and find the accesses that tracing has changed."""
    traced = probed.traced
    with stage("proving on the assembled code that times are complete"):
        proofs = prove(traced, code)
    changed = {change.site: str(change) for change in access_changes(probed.original.module, original, traced, code)}
    return _ProofsAndChanges(proofs, changed)


def _with_evidence(sites: tuple[Site, ...], evidence: str) -> tuple[Site, ...]:
    """Return the sites with this evidence on those that have a scheme."""
    return tuple(replace(site, evidence=evidence) if site.scheme else site for site in sites)


def _why(error: Exception) -> str:
    """Return the first line of the message, prefixed with the type of the error unless it is a MemlaneError."""
    line = str(error).partition("\n")[0]
    return line if isinstance(error, MemlaneError) else f"{type(error).__name__}: {line}"
