"""A deadline ends the work under it, and only that."""

from __future__ import annotations

import asyncio

import pytest

from gateway.deadline import Deadline


def now() -> float:
    return asyncio.get_running_loop().time()


async def wait_under(deadline: Deadline, *, bring_forward: float | None = None) -> None:
    """Work that never ends by itself."""
    with deadline:
        if bring_forward is not None:
            deadline.bring_forward(bring_forward)
        await asyncio.Event().wait()


async def test_work_that_outlasts_it_times_out() -> None:
    with pytest.raises(TimeoutError):
        await wait_under(Deadline(now()))
    await asyncio.sleep(0)  # the task goes on: it is not cancelled any more


async def test_work_that_ends_earlier_is_left_alone() -> None:
    with Deadline(now() + 0.001):
        await asyncio.sleep(0)
    await asyncio.sleep(0.002)


async def test_brought_forward_it_ends_earlier() -> None:
    with pytest.raises(TimeoutError):
        await wait_under(Deadline(now() + 900), bring_forward=0)


async def test_brought_forward_before_the_work_starts_it_ends_earlier() -> None:
    deadline = Deadline(now() + 900)
    deadline.bring_forward(0)
    with pytest.raises(TimeoutError):
        await wait_under(deadline)


async def test_it_is_never_put_off() -> None:
    with pytest.raises(TimeoutError):
        await wait_under(Deadline(now()), bring_forward=900)


async def test_once_the_work_has_ended_it_can_do_nothing() -> None:
    with Deadline(now() + 900) as deadline:
        pass
    deadline.bring_forward(0)
    await asyncio.sleep(0.001)


async def test_another_cancellation_stays_one() -> None:
    task = asyncio.create_task(wait_under(Deadline(now() + 900)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_the_work_stays_one() -> None:
    with pytest.raises(ValueError, match="mine"), Deadline(now() + 900):
        raise ValueError("mine")
