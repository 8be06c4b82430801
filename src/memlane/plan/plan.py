"""Define plans: steps on the queues of several devices, with repeats, as data independent of devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import lcm

from memlane.errors import BadPlan
from memlane.number_format import plural
from memlane.plan.actions import Action, Copy, DeviceCall, HostCall, Launch, Put, Together, Touch, Wait, raised_flags, signals
from memlane.plan.buffers import Buffer, View


@dataclass(frozen=True, slots=True)
class Step:
    """One action on a queue of a device. It starts when the previous step on that queue and all its dependencies have ended."""

    action: Action
    device: int | None = None
    """Device of its queue; None is the host. Concurrent launches occupy the queue of each of their devices."""
    queue: int = 0
    after: tuple[int, ...] = ()
    """Positions of steps in the same list (plan or repeat) that must end first."""
    after_last_turn: tuple[int, ...] = ()
    """Positions of steps in the same repeat whose execution in the previous turn must end first."""
    label: str = ""
    is_urgent: bool = False
    """Whether blocks of its kernels start before those of other kernels that wait for room on the device."""

    def __post_init__(self) -> None:
        if isinstance(self.action, Launch) and self.device is None:
            raise BadPlan(f"the launch of {self.action} needs a device")
        if isinstance(self.action, DeviceCall | Put | Wait) and self.device is None:
            raise BadPlan(f"{self.action} needs a device to run on")
        for flag in self.action.flags if isinstance(self.action, Wait) else ():
            if flag.buffer.home != self.device:
                raise BadPlan(
                    f"device {self.device} cannot wait for flag {flag.buffer}, whose home is {flag.buffer.home}: make the waiting "
                    "device the home of the flag"
                )
        if isinstance(self.action, HostCall | Together) and self.device is not None:
            raise BadPlan(f"{self.action} does not run on device {self.device} alone: leave the device out")
        if (
            isinstance(self.action, Copy)
            and self.device is None
            and not (_on_host(self.action.source) and _on_host(self.action.destination))
        ):
            raise BadPlan(f"{self.action} needs a device to run on")
        for touch in _device_touches(self):
            if touch.view.buffer.home == "host":
                raise BadPlan(f"{self.action} cannot access {touch.view}, which is in pageable host memory: make it pinned, or copy it")

    @property
    def queues(self) -> tuple[tuple[int | None, int], ...]:
        """Queues of the step, as (device, queue)."""
        if isinstance(self.action, Together):
            return tuple((device, self.queue) for device, _ in self.action.launches)
        return ((self.device, self.queue),)

    @property
    def name(self) -> str:
        return self.label or str(self.action)


@dataclass(frozen=True, slots=True)
class Repeat:
    """Steps that run `count` times. Queues continue from turn to turn, so turns overlap as far as queues and dependencies allow."""

    steps: tuple[Step | Repeat, ...]
    count: int
    """Number of turns; with `until` the maximum."""
    rotate: tuple[tuple[Buffer, ...], ...] = ()
    """Groups of buffers that rotate after each turn: with (a, b), name a refers to buffer b in odd turns. Outside the repeat each name
    refers to its own buffer again; `Repeat.holder` returns where a result lies."""
    until: View | None = None
    """A single element on the host: the repeat ends when it is nonzero, checked after each `every` turns."""
    every: int = 1
    after: tuple[int, ...] = ()
    """Positions of steps in the surrounding list that must end before any of its steps begins."""
    label: str = ""

    def __post_init__(self) -> None:
        if self.count < 0 or self.every < 1:
            raise BadPlan(f"a repeat cannot run {self.count} times and check its end every {self.every} turns")
        for group in self.rotate:
            if len(set(group)) != len(group) or len(group) < 2:
                raise BadPlan(f"a group of rotating buffers needs two or more different buffers, not ({', '.join(map(str, group))})")
            if len({(buffer.nbytes, buffer.home) for buffer in group}) > 1:
                raise BadPlan(f"rotating buffers must have the same size and home, unlike {', '.join(map(str, group))}")
        rotating = [buffer for group in self.rotate for buffer in group]
        if len(set(rotating)) != len(rotating):
            raise BadPlan("a buffer can rotate in one group only")
        if self.until is not None:
            if self.until.size != 1 or not self.until.buffer.is_on_host:
                raise BadPlan(f"the end condition of a repeat must be a single element on the host, not {self.until}")
            if self.every % self.period or self.count % self.period:
                raise BadPlan(
                    f"after a repeat that may end after any {self.every} turns, or after {self.count}, it is not known which of "
                    f"{self.period} rotating buffers holds the result: make `every` and `count` multiples of {self.period}"
                )

    @property
    def period(self) -> int:
        """Number of turns after which the rotating buffers are in their first places again."""
        return lcm(*(len(group) for group in self.rotate))

    def holder(self, buffer: Buffer, turn: int | None = None) -> Buffer:
        """Return the buffer that `buffer` refers to in a turn, or after the last one, where the next turn would find it."""
        at = self.count if turn is None else turn
        for group in self.rotate:
            if buffer in group:
                return group[(group.index(buffer) + at) % len(group)]
        return buffer

    @property
    def name(self) -> str:
        return self.label or f"repeat {self.count} times"


@dataclass(frozen=True)
class Plan:
    """Launches, copies and host calls on several devices, as data: without addresses, loaded modules or targets.

    It can be printed, compared, pickled, sent as JSON, checked (`check`), drawn and predicted before anything runs. `PlanBuilder` creates
    plans.
    """

    steps: tuple[Step | Repeat, ...]

    def __post_init__(self) -> None:
        _check_positions(self.steps, "the plan", repeats=False)
        _check_flags(self.steps)
        by_name: dict[str, Buffer] = {}
        for buffer in _buffers(self.steps):
            if by_name.setdefault(buffer.name, buffer) != buffer:
                raise BadPlan(f"the plan has two buffers with the name {buffer.name!r}: {by_name[buffer.name]!r} and {buffer!r}")

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Buffers of all steps, in the order of first use."""
        return tuple(dict.fromkeys(_buffers(self.steps)))

    @property
    def flags(self) -> tuple[Buffer, ...]:
        """Buffers that are flags of puts and waits."""
        return tuple(dict.fromkeys(flag.buffer for step in all_steps(self.steps) for flag in _flags(step.action)))

    @property
    def devices(self) -> tuple[int, ...]:
        """Numbers of the devices that run steps or hold buffers."""
        working = {device for step in all_steps(self.steps) for device, _ in step.queues if device is not None}
        return tuple(sorted(working | {buffer.home for buffer in self.buffers if isinstance(buffer.home, int)}))

    @property
    def peers(self) -> tuple[tuple[int, int], ...]:
        """Pairs of devices of which the first accesses memory of the second, so that both must be peers."""
        pairs = set()
        for step in all_steps(self.steps):
            for device, _ in step.queues:
                homes = {touch.view.buffer.home for touch in _device_touches(step, device)}
                homes |= {flag.buffer.home for flag in _flags(step.action)}
                pairs |= {(device, home) for home in homes if device is not None and isinstance(home, int) and home != device}
        return tuple(sorted(pairs))

    @property
    def copied(self) -> tuple[tuple[int, int], ...]:
        """Pairs of devices between which data is copied, with the lower number first."""
        pairs = set()
        for step in all_steps(self.steps):
            if isinstance(step.action, Copy):
                of, to = step.action.source.buffer.home, step.action.destination.buffer.home
                if isinstance(of, int) and isinstance(to, int) and of != to:
                    pairs.add((min(of, to), max(of, to)))
        return tuple(sorted(pairs))

    def __str__(self) -> str:
        return "\n".join(_table(self.steps, ""))


def all_steps(steps: Sequence[Step | Repeat]) -> Iterator[Step]:
    """Yield each step of a list once, including those inside repeats."""
    for item in steps:
        if isinstance(item, Repeat):
            yield from all_steps(item.steps)
        else:
            yield item


def all_repeats(steps: Sequence[Step | Repeat]) -> Iterator[Repeat]:
    """Yield the repeats of a list, including nested ones."""
    for item in steps:
        if isinstance(item, Repeat):
            yield item
            yield from all_repeats(item.steps)


def _buffers(steps: Sequence[Step | Repeat]) -> Iterator[Buffer]:
    for item in steps:
        if isinstance(item, Repeat):
            yield from _buffers(item.steps)
            yield from (buffer for group in item.rotate for buffer in group)
            if item.until is not None:
                yield item.until.buffer
            continue
        action = item.action
        yield from (flag.buffer for flag in _flags(action))
        launches = [launch for _, launch in action.launches] if isinstance(action, Together) else [action]
        for one in launches:
            if isinstance(one, Launch | HostCall | DeviceCall):
                yield from (value.buffer for value in one.arguments if isinstance(value, View))
            yield from (touch.view.buffer for touch in one.touches)


def _device_touches(step: Step, device: int | None = None) -> Iterator[Touch]:
    """Yield the views that the kernels or the function of a step access, on one device if several run concurrently.

    Copies are left out: the driver reaches all memory.
    """
    if isinstance(step.action, Launch | DeviceCall | Put):
        yield from step.action.touches
    elif isinstance(step.action, Together):
        for where, launch in step.action.launches:
            if device is None or where == device:
                yield from launch.touches


def _flags(action: Action) -> tuple[View, ...]:
    """Return the flags that an action raises or waits for."""
    return action.flags if isinstance(action, Wait) else raised_flags(action)


def _check_flags(items: Sequence[Step | Repeat]) -> None:
    """Raise BadPlan unless each flag is raised by one step and awaited by one later step in the same list."""
    raising: dict[Buffer, list[Step]] = {}
    waiting: dict[Buffer, list[tuple[Step, bool]]] = {}
    for steps in (items, *(repeat.steps for repeat in all_repeats(items))):
        for step in steps:
            if not isinstance(step, Step):
                continue
            before = [steps[other] for other in step.after] if isinstance(step.action, Wait) else []
            for flag in _flags(step.action):
                if not isinstance(step.action, Wait):
                    raising.setdefault(flag.buffer, []).append(step)
                else:
                    is_behind = any(isinstance(one, Step) and signals(one.action, Wait((flag,))) for one in before)
                    waiting.setdefault(flag.buffer, []).append((step, is_behind))
    rotating = {buffer for repeat in all_repeats(items) for group in repeat.rotate for buffer in group}
    for buffer in dict.fromkeys([*raising, *waiting]):
        raised, awaited = len(raising.get(buffer, ())), len(waiting.get(buffer, ()))
        if (raised, awaited) != (1, 1):
            raise BadPlan(
                f"flag {buffer} is raised by {plural(raised, 'step')} and awaited by {awaited}: give each pair of a put and a wait its "
                "own flag"
            )
        if not waiting[buffer][0][1]:
            raise BadPlan(f"{waiting[buffer][0][0].name!r} does not wait for the put that raises {buffer}: add that put to its `after`")
        if buffer in rotating:
            raise BadPlan(f"flag {buffer} cannot rotate: a put raises the same flag in each turn")
    touched = {touch.view.buffer for step in all_steps(items) for touch in step.action.touches}
    for buffer in raising:
        if buffer in touched:
            raise BadPlan(f"buffer {buffer} is a flag and cannot hold data: use another buffer")


def _on_host(view: View) -> bool:
    return view.buffer.is_on_host


def _check_positions(items: Sequence[Step | Repeat], where: str, repeats: bool) -> None:
    for number, item in enumerate(items):
        for other in item.after:
            if not 0 <= other < len(items):
                raise BadPlan(f"step {number} of {where} waits for step {other}, which does not exist")
            if other >= number:
                raise BadPlan(_describe_wrong_order(items, number, other, where))
        if isinstance(item, Repeat):
            _check_positions(item.steps, f"{item.name!r}", repeats=True)
            continue
        for other in item.after_last_turn:
            if not repeats:
                raise BadPlan(f"step {number} of {where} waits for a previous turn, but is not in a repeat")
            if not 0 <= other < len(items):
                raise BadPlan(f"step {number} of {where} waits for step {other} of the previous turn, which does not exist")


def _describe_wrong_order(items: Sequence[Step | Repeat], number: int, other: int, where: str) -> str:
    """Describe what is wrong with a step that waits for itself or for a later one."""
    if other == number:
        return f"step {number} of {where} waits for itself"
    came_from = {other: number}
    work = [other]
    while work and number not in came_from:
        one = work.pop()
        for waited in items[one].after:
            if 0 <= waited < len(items) and waited not in came_from:
                came_from[waited] = one
                work.append(waited)
    if number not in came_from:
        return f"step {number} of {where} waits for step {other}, which comes after it: put step {other} first"
    circle = {number}
    one = came_from[number]
    while one not in circle:
        circle.add(one)
        one = came_from[one]
    *others, last = map(str, sorted(circle))
    return f"steps {', '.join(others)} and {last} of {where} wait for each other in a cycle, so none of them can start"


def _table(items: Sequence[Step | Repeat], indent: str) -> Iterator[str]:
    for number, item in enumerate(items):
        after = f"  after {', '.join(map(str, item.after))}" if item.after else ""
        if isinstance(item, Repeat):
            turning = "".join(f", rotating {' <- '.join(map(str, group))}" for group in item.rotate)
            until = f", until {item.until} is not zero (every {item.every})" if item.until is not None else ""
            named = f"{item.label}: " if item.label else ""
            yield f"{indent}{number:>3}  {named}repeat {item.count} times{turning}{until}{after}"
            yield from _table(item.steps, indent + "     ")
            continue
        where = "host" if item.device is None else f"device {item.device}"
        where = f"{plural(len(item.queues), 'device')}" if isinstance(item.action, Together) else where
        if item.after_last_turn:
            after += f"  after {', '.join(map(str, item.after_last_turn))} of the previous turn"
        what = f"{item.label}: {item.action}" if item.label else str(item.action)
        what += ", urgent" if item.is_urgent and isinstance(item.action, Launch) else ""
        yield f"{indent}{number:>3}  {where:<9} queue {item.queue}  {what}{after}"
