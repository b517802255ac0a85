"""What services stand on."""

from typing import NamedTuple

from latermq_broker.config.config import Config
from latermq_broker.engine.engine import Engine
from latermq_broker.services.call.handler import Committer
from latermq_broker.services.clients.session import Sessions


class Rooms(NamedTuple):
    """Handed to each service, which takes from it what it needs."""

    engine: Engine
    committer: Committer
    sessions: Sessions
    config: Config
