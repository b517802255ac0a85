"""HTTP/2 (RFC 9113) without I/O: bytes and the time in, bytes out.

`connection` and `streams` are the server's side, `client_connection` and `client_streams` the
client's; frames, windows, blocks and control frames are the same for both.
"""
