"""What goes to a provider over a real socket: the headers that were given, and no others."""

from __future__ import annotations

import asyncio

from gateway.upstream import AiohttpUpstream


async def test_a_provider_sees_the_given_headers_and_none_of_the_client_library() -> None:
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        seen.append(await reader.readexactly(2))
        writer.write(b"HTTP/1.1 200 OK\r\nX-Kind: a\r\ncontent-length: 2\r\n\r\nok")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    upstream = AiohttpUpstream()
    try:
        reply = await upstream.send(f"http://{host}:{port}/v1/x?a=b", [("x-own", "1")], b"{}")
        body = b"".join([chunk async for chunk in reply.chunks()])
        await reply.close()
    finally:
        await upstream.close()
        server.close()
        await server.wait_closed()
    assert (reply.status, body, (b"x-kind", b"a") in reply.headers) == (200, b"ok", True)
    line, *headers = seen[0].decode().strip().split("\r\n")
    assert line == "POST /v1/x?a=b HTTP/1.1"
    assert {header.lower() for header in headers} == {f"host: {host}:{port}", "x-own: 1", "content-length: 2"}
    assert seen[1] == b"{}"
