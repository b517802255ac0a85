"""The descriptor pool of every stub in this package.

Two copies of `apache.rocketmq.v2` cannot live in one pool: the official client registers its own
in protobuf's default pool, so ours stay out of it. Generated modules are rewritten by
`proto/generate.py` to register here, the well-known types included, because a descriptor may
only refer to descriptors of its own pool. The classes of the two copies are strangers to each
other; their bytes are the same.
"""

from typing import Final

from google.protobuf.descriptor_pool import DescriptorPool

POOL: Final = DescriptorPool()
