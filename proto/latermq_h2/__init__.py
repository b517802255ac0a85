"""HTTP/2, header compression and gRPC's framing, without I/O: what the broker and the SDK share.

It imports nothing of ours, no loop and no clock. Both sides of a connection are here: `http2`
holds the server's and the client's.
"""
