"""From the report to the verdict: several accounts on several workers, tables and scripts together, in any order."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from pallas.model import Message
from tests.support.claimants import TIME_S, claimants
from tests.support.matchers import Matcher

WORKERS = 3
GROUPS: Iterator[int] = itertools.count(5000)
"""The server is emptied before a test, not before each of its examples."""
EXAMPLES = settings(
    max_examples=300,
    deadline=None,
    phases=set(Phase) - {Phase.explain},
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@dataclass(slots=True, frozen=True)
class Seat:
    """An account: its worker, and whether its end reports sequences."""

    bot_id: str
    worker: int
    sequenced: bool


@dataclass(slots=True, frozen=True)
class Step:
    """One report, or (without one) a worker that is killed and started anew."""

    seat: Seat
    number: int
    message: Message | None
    waits: bool
    """Whether all that came before is decided first."""


@dataclass(slots=True, frozen=True)
class Story:
    """What accounts reported, in the order in which it arrived."""

    seats: tuple[Seat, ...]
    steps: tuple[Step, ...]

    def contents(self) -> dict[tuple[str, str, int], list[Step]]:
        """The reports by who said what when, which is all that tells them apart without sequences."""
        found = defaultdict(list)
        for step in self.steps:
            if step.message is not None:
                found[step.message.user_id, step.message.text, step.message.time_s].append(step)
        return found

    def lives(self) -> dict[int, int]:
        """For each step by its place, how often its worker had been started anew before."""
        count: Counter[int] = Counter()
        found = {}
        for step in self.steps:
            if step.message is None:
                count[step.seat.worker] += 1
            found[id(step)] = count[step.seat.worker]
        return found


@st.composite
def stories(draw: st.DrawFn, *, plain: bool | None = None, restarts: int = 0, together: bool = False) -> Story:
    """Twins at 0 to 3 s, losses, replays, all orders; `plain`: all ends are such or none is, else drawn."""
    seats = tuple(
        Seat(str(100 + at), draw(st.integers(0, WORKERS - 1)), draw(st.booleans()) if plain is None else not plain)
        for at in range(draw(st.integers(1, 5)))
    )
    said = draw(st.lists(st.tuples(st.sampled_from("xy"), st.sampled_from("78"), st.integers(0, 3)), max_size=6))
    group = str(next(GROUPS))
    reports = []
    for number, (text, user, second) in enumerate(said):
        for seat in seats:
            message = Message(
                seat.bot_id,
                group,
                user,
                f"{number + 1}",
                700 + number if seat.sequenced else None,
                TIME_S + second,
                text,
                (),
                [{"type": "text", "data": {"text": text}}],
                {},
            )
            waits = not together or draw(st.booleans())
            times = draw(st.sampled_from([0, 1, 1, 1, 1, 2]))
            reports += [Step(seat, number, replace(message), waits) for _ in range(times)]
    steps = list(draw(st.permutations(reports)))
    for _ in range(draw(st.integers(0, restarts))):
        steps.insert(draw(st.integers(0, len(steps))), Step(draw(st.sampled_from(seats)), -1, None, waits=True))
    return Story(seats, tuple(steps))


async def told(url: str, story: Story) -> list[bool]:
    """Which of the steps' reports were handled."""
    verdicts = [False] * len(story.steps)
    async with claimants(url, WORKERS) as found:
        workers = [Matcher(one) for one in found]
        for worker in workers:
            worker.terms.contents = not all(seat.sequenced for seat in story.seats)

        async def one(place: int, worker: Matcher, message: Message) -> None:
            verdicts[place] = await worker.report(message)

        under_way: list[asyncio.Task[None]] = []
        for place, step in enumerate(story.steps):
            if step.waits and under_way:
                await asyncio.gather(*under_way)
                under_way.clear()
            worker = workers[step.seat.worker]
            if step.message is None:
                worker.restart()
            else:
                under_way.append(asyncio.create_task(one(place, worker, step.message)))
                await asyncio.sleep(0)
        await asyncio.gather(*under_way)
    return verdicts


def compare(story: Story, verdicts: list[bool]) -> None:
    """Of each content: as many as there are sequences, or as one account told apart in one life of its worker."""
    lives = story.lives()
    places = {id(step): place for place, step in enumerate(story.steps)}
    for content, steps in story.contents().items():
        handled = sum(verdicts[places[id(step)]] for step in steps)
        sequences = len({step.number for step in steps if step.seat.sequenced})
        plain = {(step.seat.bot_id, lives[id(step)], step.number) for step in steps if not step.seat.sequenced}
        most = max(Counter((bot, life) for bot, life, _ in plain).values(), default=0)
        physical = len({step.number for step in steps})
        event(f"twins: {physical}")
        assert max(sequences, most) <= handled <= physical, (content, handled, sequences, most, physical)
        if not any(step.message is None for step in story.steps):
            assert handled == max(sequences, most), (content, handled, sequences, most)


@EXAMPLES
@given(story=stories(plain=False, restarts=2))
def test_with_sequences_each_message_is_handled_once(redis_url: str, story: Story) -> None:
    verdicts = asyncio.run(told(redis_url, story))
    handled = Counter(step.number for step, won in zip(story.steps, verdicts, strict=True) if won)
    assert handled == Counter({step.number for step in story.steps if step.message is not None})


@EXAMPLES
@given(story=stories(plain=True))
def test_without_sequences_as_many_are_handled_as_the_account_that_saw_most(redis_url: str, story: Story) -> None:
    compare(story, asyncio.run(told(redis_url, story)))


@EXAMPLES
@given(story=stories())
def test_in_mixed_groups_the_number_is_exact(redis_url: str, story: Story) -> None:
    compare(story, asyncio.run(told(redis_url, story)))


@EXAMPLES
@given(story=stories(together=True))
def test_the_number_is_exact_while_claims_overtake_each_other(redis_url: str, story: Story) -> None:
    compare(story, asyncio.run(told(redis_url, story)))


@EXAMPLES
@given(story=stories(restarts=2))
def test_a_worker_that_is_started_anew_takes_no_late_copy_for_a_message(redis_url: str, story: Story) -> None:
    compare(story, asyncio.run(told(redis_url, story)))
