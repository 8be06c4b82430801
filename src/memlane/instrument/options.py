"""Define the options of tracing and counting: which sites, which scheme, which sample."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from memlane.errors import MemlaneError
from memlane.instrument.sampling import Ranges, Sampling
from memlane.instrument.schemes import SCHEMES
from memlane.instrument.visibility import STORES, waits_until_visible
from memlane.record import Site
from memlane.record.site import TIMED_KINDS as KINDS

SPACES = ("global", "shared", "shared::cluster", "local", "const", "tex", "surf", "generic")
STAGINGS = ("auto", "shared", "global")
AUTO = "global"
"""Staging that `auto` selects. docs/overhead.md has the times of both."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which sites to instrument; every condition that is not None must hold.

    Loads of kernel parameters are never sites.
    """

    spaces: Set[str] | None = None
    """State spaces, from `SPACES`. An access through a generic address is `generic`, wherever the address leads."""
    kinds: Set[str] | None = None
    """Kinds of access, from `KINDS`."""
    lines: Set[tuple[str, int]] | None = None
    """Source lines as (file, line); a file matches by its end (`transpose.cu`), and an empty one matches any file."""
    sites: Set[int] | None = None
    """Numbers in the site table."""
    kernels: Set[str] | None = None
    """PTX names or titles of kernels."""

    def __post_init__(self) -> None:
        for label, chosen, known in (("space", self.spaces, SPACES), ("kind", self.kinds, KINDS)):
            for word in sorted(chosen or ()):
                if word not in known:
                    raise MemlaneError(f"unknown {label} of accesses: {word!r}; choose from {', '.join(known)}")

    def takes(self, site: Site, kernel: str) -> bool:
        """Return whether the selection contains the site of the kernel with the PTX name `kernel`."""
        return (
            (self.spaces is None or site.space in self.spaces)
            and (self.kinds is None or site.kind in self.kinds)
            and (self.sites is None or site.id in self.sites)
            and (self.kernels is None or kernel in self.kernels or site.kernel in self.kernels)
            and (self.lines is None or any(line == site.line and site.file.endswith(file) for file, line in self.lines))
        )


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """The options of a trace, for `Tracer`. `TraceOptions.of` takes the same arguments as `ml.trace`.

        options = ml.TraceOptions.of(scheme="exposed", blocks="0-3", every=32)

    Schemes: `dependent` waits for the value of each access, `exposed` lets loads overlap and times the wait of their first consumer,
    `consume` waits by storing the value to shared memory; `simple` and `paper` do not wait and serve for comparison. Raises MemlaneError
    for an unknown scheme, staging or end of stores.
    """

    scheme: str = "dependent"
    """`dependent`, `exposed`, `consume`, `simple` or `paper`; see `memlane.instrument.schemes`."""
    selection: Selection = field(default_factory=Selection)
    sampling: Sampling = field(default_factory=Sampling)
    """Which warps to trace, and which executions of each site."""
    stores: str = "issued"
    """Event that ends the time of stores and reductions, from `STORES`: `issued`, or visible to the `block` or to the `device`, each by an
    added load or fence; see `memlane.instrument.visibility`."""
    staging: str = "auto"
    """Where records go first, from `STAGINGS`: `global` memory, or `shared` memory after the kernel's own if that does not lower occupancy
    (see `memlane.instrument.staging`); `auto` selects the one that was measured to be faster."""
    tagged: bool = False
    """Whether kernels get an additional parameter by which the host describes their launches (`LAUNCH_DTYPE`) and assigns slices to those
    that run exactly once. Every launch has to pass it."""

    def __post_init__(self) -> None:
        if self.scheme not in SCHEMES:
            raise MemlaneError(f"unknown scheme {self.scheme!r}; choose from {', '.join(SCHEMES)}")
        if self.staging not in STAGINGS:
            raise MemlaneError(f"unknown staging {self.staging!r}; choose from {', '.join(STAGINGS)}")
        if self.stores not in STORES:
            raise MemlaneError(f"stores cannot be timed until {self.stores!r}; choose from {', '.join(STORES)}")
        if self.stores != "issued" and not waits_until_visible(SCHEMES[self.scheme]):
            waiting = ", ".join(name for name, scheme in SCHEMES.items() if waits_until_visible(scheme))
            raise MemlaneError(
                f"the scheme {self.scheme} does not wait for anything, so it cannot time stores until {self.stores}; choose from {waiting}"
            )

    @classmethod
    def of(
        cls,
        scheme: str = "dependent",
        selection: Selection | None = None,
        *,
        blocks: Ranges | None = None,
        warps: Ranges | None = None,
        sms: Ranges | None = None,
        executions: Ranges | None = None,
        every: int = 1,
        seed: int = 0,
        whole_blocks: bool = False,
        stores: str = "issued",
        staging: str = "auto",
    ) -> TraceOptions:
        """Return options with windows and samples as in `ml.trace`; see `Sampling.of`."""
        sampling = Sampling.of(
            blocks=blocks, warps=warps, sms=sms, executions=executions, every=every, seed=seed, whole_blocks=whole_blocks
        )
        return cls(scheme, selection or Selection(), sampling, stores, staging)

    def makes_the_same(self, other: TraceOptions) -> bool:
        """Return whether both options produce the same instrumented module. The extents of windows do not matter, only their kinds."""
        mine, theirs = ((one.scheme, one.selection, one.stores, one.stages, one.tagged) for one in (self, other))
        return mine == theirs and self.sampling.makes_the_same(other.sampling)

    @property
    def stages(self) -> bool:
        """Whether kernels buffer their records in shared memory first if a launch has space there."""
        return not self.no_stages

    @property
    def no_stages(self) -> str:
        """The reason why no launch buffers its records in shared memory first; empty if a launch may do so."""
        if (AUTO if self.staging == "auto" else self.staging) == "global":
            return "as asked" if self.staging == "global" else "whichever is faster"
        if self.sampling.executions is not None:
            return "a window of executions is traced"
        if SCHEMES[self.scheme].extra_shared_bytes:
            return f"the scheme {self.scheme} uses shared memory itself"
        return ""


@dataclass(frozen=True, slots=True)
class CountOptions:
    """Options of counting."""

    selection: Selection = field(default_factory=Selection)
    branches: bool = True
    """Whether to count the branches of the chosen kernels too."""
