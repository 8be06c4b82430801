"""Who follows launches hears how far they are, and stops hearing."""

from __future__ import annotations

import pytest

from memlane.launch import Launch, LoadedModule, following, tell_progress


@pytest.fixture
def launch(kernels: LoadedModule) -> Launch:
    return kernels["plain"][3, 1].bind()


def test_all_who_follow_hear(launch: Launch) -> None:
    heard: list[tuple[str, int]] = []
    with following(lambda _, done: heard.append(("outer", done))):
        with following(lambda said, done: heard.append((said.kernel.name, done))):
            tell_progress(launch, 1)
        tell_progress(launch, 2)
    tell_progress(launch, 3)
    assert heard == [("outer", 1), ("plain", 1), ("outer", 2)]


def test_nobody_follows_after_an_error(launch: Launch) -> None:
    heard: list[int] = []
    with pytest.raises(ValueError, match="on the way"), following(lambda _, done: heard.append(done)):
        raise ValueError("on the way")
    tell_progress(launch, 1)
    assert heard == []
