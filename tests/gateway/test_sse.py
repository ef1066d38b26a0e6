"""Events cut out of a stream are the same however the bytes arrive, and no byte is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway import sse
from gateway.sse import Event, EventSplitter

lines = st.sampled_from(
    [b"data: {}", b"data:x", b"data: ", b": note", b"event: message_stop", b"data: a:b", b"id"]
)
ends = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n", b"\r\r"])
streams = st.lists(st.tuples(lines, ends).map(b"".join), max_size=12).map(b"".join)


def split(chunks: list[bytes]) -> tuple[list[Event], bytes]:
    """Every event, and what came after the last blank line."""
    splitter = EventSplitter()
    events = [event for chunk in chunks for event in splitter.feed(chunk)]
    return events, splitter.rest()


@given(streams, st.data())
def test_however_the_bytes_arrive_the_events_are_the_same(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    parts = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    events, rest = split(parts)
    assert b"".join(event.raw for event in events) + rest == stream
    # A blank line of CR alone is whole as soon as it is there; where its LF comes later, that stays with the next.
    if b"\r" not in stream:
        assert (events, rest) == split([stream])


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end_of_the_standard_ends_an_event(end: bytes) -> None:
    stream = (
        b"data: 1"
        + end * 2
        + b"event: x"
        + end
        + b"data: 2"
        + end
        + b"data: 3"
        + end * 2
        + b": note"
        + end * 2
    )
    for size in (1, 2, 3, len(stream)):
        events, rest = split([stream[at : at + size] for at in range(0, len(stream), size)])
        assert [event.data for event in events] == [b"1", b"2\n3", None]
        assert rest == b""


def test_an_event_that_is_too_long_to_keep_is_forwarded_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "LARGEST_EVENT", 10)
    events, rest = split([b"data: 12345678", b"\n\ndata: 1\n\n"])
    assert events[0] == Event(b"data: 12345678", None)
    assert b"".join(event.raw for event in events) + rest == b"data: 12345678\n\ndata: 1\n\n"
