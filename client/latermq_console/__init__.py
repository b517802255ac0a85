"""A console in the browser: a process of its own that asks a broker through `latermq.admin`.

It keeps nothing on disk: sessions, jobs and the last hour's figures live in its memory, bounded.
"""
