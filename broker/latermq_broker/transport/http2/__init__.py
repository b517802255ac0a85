"""HTTP/2 (RFC 9113), the server's side, without I/O: bytes and the time in, bytes out.

It imports nothing of ours but hpack, and nothing of asyncio.
"""
