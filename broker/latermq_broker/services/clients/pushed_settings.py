"""Settings that clients did not ask for: their group has another policy than they were told.

Whoever reads them goes by the new policy at once; whoever does not is told at its next settings, at
most five minutes later. The broker's own part (attempts, a group's backoff, order) holds for
everybody from the change on.
"""

import logging

from latermq_broker.config.config import Config
from latermq_broker.engine.state.model import Group
from latermq_broker.services.call.answers import ok_status
from latermq_broker.services.clients import settings as client_settings
from latermq_broker.services.clients.client_quirks import Quirk
from latermq_broker.services.clients.session import Sessions
from latermq_proto.apache.rocketmq.v2 import service_pb2

log = logging.getLogger("latermq.services")


def push_settings(sessions: Sessions, group_name: str, group: Group | None, config: Config) -> int:
    """Tell the group's connected consumers, if what they are to know has changed.

    Args:
        group: None when it does not exist any more.

    Returns:
        How many were told; the others hear it when they send their settings again.
    """
    reached = 0
    for session in list(sessions.all()):
        if not session.consumes or session.group != group_name:
            continue
        merged = client_settings.merge(session.settings, group, session.quirks, config)
        if merged == session.settings:
            continue
        if Quirk.NO_PUSHED_SETTINGS in session.quirks:
            continue
        command = service_pb2.TelemetryCommand(status=ok_status(), settings=merged)
        if sessions.push(session.client_id, command):
            session.settings = merged
            reached += 1
    if reached:
        log.info("settings pushed", extra={"group": group_name, "clients": reached})
    return reached
