"""HPACK (RFC 7541): a decoder with the caches that make it cheap, and an encoder without state.

It imports nothing of ours and nothing of asyncio.
"""
