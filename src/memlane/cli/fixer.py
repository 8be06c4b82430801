"""Define the launch observer of `memlane fix`."""

from __future__ import annotations

from memlane.launch import Launch, suspend_observers
from memlane.measure import LaunchObserver
from memlane.optimize import Fix, LayoutAdvice, advise_launch, fix_launch
from memlane.record import kernel_label


class Fixer(LaunchObserver):
    """Launch observer that tries layouts before a launch, and then lets it run unchanged.

    It does so for the first launch of each kernel, or only for the launch numbered `only_launch`.
    """

    def __init__(self, only_launch: int | None, array: str, rows: int | None, columns: int | None) -> None:
        super().__init__(only_launch)
        self.looked_at: list[str] = []
        """Labels of the kernels for which layouts were tried."""
        self.found: list[Fix] = []
        self.advice: list[LayoutAdvice] = []
        """Layout advice for arrays in global memory, if no array in shared memory was named."""
        self._array, self._rows, self._columns = array, rows, columns
        self._known: set[str] = set()

    def _replacement(self, number: int, launch: Launch) -> Launch:
        title = launch.kernel.title
        if title not in self._known:
            self._known.add(title)
            self.looked_at.append(kernel_label(title))
            self.found += fix_launch(launch, shared=self._array or None, rows=self._rows, columns=self._columns)
            if not self._array:
                with suspend_observers():
                    self.advice += advise_launch(launch)
        return launch
