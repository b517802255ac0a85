"""A small shop: who places orders, who bills them, who reports what could not be billed.

`latermq demo` and docker/compose.yaml run these modules; each is also a short example of the SDK.
"""
