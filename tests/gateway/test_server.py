"""The head of an answer leaves with what is written next, in one write, and never later than the loop's next turn."""

from __future__ import annotations

import asyncio

import pytest

from gateway.server import OneWriteTransport

HEAD, BODY = b"HTTP/1.1 200 OK\r\n\r\n", b"body"


class Wire(asyncio.Transport):
    """Notes every write, and the close."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes | str] = []

    def write(self, data: object) -> None:
        assert isinstance(data, bytes)
        self.sent.append(data)

    def close(self) -> None:
        self.sent.append("closed")

    def abort(self) -> None:
        self.sent.append("aborted")


@pytest.fixture
def wire() -> Wire:
    return Wire()


async def over(wire: Wire) -> OneWriteTransport:
    return OneWriteTransport(wire, asyncio.get_running_loop())


async def test_a_head_and_its_body_are_one_write(wire: Wire) -> None:
    transport = await over(wire)
    transport.write(HEAD)
    transport.write(BODY)
    transport.write(BODY)
    await asyncio.sleep(0)
    assert wire.sent == [HEAD + BODY, BODY]


async def test_a_head_whose_body_is_late_leaves_alone(wire: Wire) -> None:
    transport = await over(wire)
    transport.write(HEAD)
    assert wire.sent == []
    await asyncio.sleep(0)
    transport.write(BODY)
    assert wire.sent == [HEAD, BODY]


async def test_two_heads_keep_their_order(wire: Wire) -> None:
    transport = await over(wire)
    transport.write(HEAD)
    transport.write(HEAD)
    await asyncio.sleep(0)
    assert b"".join(piece for piece in wire.sent if isinstance(piece, bytes)) == HEAD + HEAD


async def test_closing_sends_a_head_that_waits(wire: Wire) -> None:
    transport = await over(wire)
    transport.write(HEAD)
    transport.close()
    await asyncio.sleep(0)
    assert wire.sent == [HEAD, "closed"]


async def test_an_aborted_connection_sends_nothing_more(wire: Wire) -> None:
    transport = await over(wire)
    transport.write(HEAD)
    transport.abort()
    await asyncio.sleep(0)
    assert wire.sent == ["aborted"]
