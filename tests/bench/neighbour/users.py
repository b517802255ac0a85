"""Whose calls meet in one broker: a neighbour who sends at times, and a user with much to do."""

from typing import Final, NamedTuple

from latermq import admin
from latermq_proto.latermq.v1 import user_pb2


class User(NamedTuple):
    access_key: str
    secret: str


ROOT: Final = User("root", "root-of-the-benchmark")
NEIGHBOUR: Final = User("neighbour", "neighbour-of-the-benchmark")
BUSY: Final = User("busy", "busy-one-of-the-benchmark")
CONFIG: Final = (
    f'[auth]\nenabled = true\nroot_access_key = "{ROOT.access_key}"\n'
    f'root_secret_key = "{ROOT.secret}"\n'
    "[server]\npolling_ms_min = 20\n"
)
CONFIG_OF_PREPARING: Final = f"{CONFIG}[delivery]\nreceive_batch_max = 256\n"
TOPIC_RIGHTS: Final = ("pub", "sub", "browse", "body")
GROUP_RIGHTS: Final = ("sub", "browse", "body", "redrive", "purge")


def create(endpoint: str) -> None:
    """Create both, with every right of users on all topics and groups."""
    kinds = ((user_pb2.Grant.TOPIC, TOPIC_RIGHTS), (user_pb2.Grant.GROUP, GROUP_RIGHTS))
    with connect(endpoint, ROOT) as asked:
        for access_key, secret in (NEIGHBOUR, BUSY):
            made = user_pb2.CreateUserRequest(access_key=access_key, secret=secret)
            asked.call(asked.users.CreateUser, made)
            for kind, rights in kinds:
                grant = user_pb2.Grant(kind=kind, pattern="*", rights=rights)
                change = user_pb2.ChangeGrantRequest(access_key=access_key, grant=grant)
                asked.call(asked.users.GrantRights, change)


def connect(endpoint: str, user: User) -> admin.Admin:
    return admin.connect(endpoint, access_key=user.access_key, secret=user.secret, tls=False)


def connect_async(endpoint: str, user: User) -> admin.AsyncAdmin:
    return admin.connect_async(endpoint, access_key=user.access_key, secret=user.secret, tls=False)
