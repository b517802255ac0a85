"""Clients: who is connected, what each is and holds; let one go."""

from typing import Final

from starlette.responses import Response

from latermq_console.drawing.links import segment
from latermq_console.drawing.words import counted
from latermq_console.serving.console import View
from latermq_proto.apache.rocketmq.v2 import definition_pb2
from latermq_proto.latermq.v1 import client_pb2

PAGE: Final = 50
KINDS: Final = {
    definition_pb2.CLIENT_TYPE_UNSPECIFIED: "has not said",
    definition_pb2.PRODUCER: "producer",
    definition_pb2.PUSH_CONSUMER: "push consumer",
    definition_pb2.SIMPLE_CONSUMER: "simple consumer",
    definition_pb2.PULL_CONSUMER: "pull consumer",
    definition_pb2.LITE_PUSH_CONSUMER: "lite push consumer",
    definition_pb2.LITE_SIMPLE_CONSUMER: "lite simple consumer",
}


async def clients(view: View) -> Response:
    """List the clients, by id."""
    desk = view.desk
    request = client_pb2.ListClientsRequest(
        group=view.asked("group"),
        topic=view.asked("topic"),
        page_size=PAGE,
        page_token=view.asked("after"),
    )
    page = await view.shards.listed(
        desk.admin.clients.ListClients, request, "clients", lambda each: each.client_id
    )
    return view.render(
        "clients.html",
        page=page,
        after=view.asked("after"),
        asked={"group": view.asked("group"), "topic": view.asked("topic")},
        kinds=KINDS,
    )


async def client(view: View) -> Response:
    """Show a client and what it holds."""
    shard = view.asked("shard")
    _, desk = await view.whose(f"@{shard}")
    request = client_pb2.GetClientRequest(client_id=view.asked("id"))
    answer = await desk.look(desk.admin.clients.GetClient, request)
    return view.render("client.html", client=answer.client, shard=shard, kinds=KINDS)


async def kick(view: View) -> Response:
    """Let a client go: others may have what it holds."""
    client_id = view.field("id")
    request = client_pb2.KickClientRequest(client_id=client_id)
    _, desk = await view.whose(f"@{view.field('shard')}")
    answer = await desk.call(desk.admin.clients.KickClient, request)
    released = counted(answer.released_count, "message")
    text = f"{client_id} was let go; {released} of it may be received by others"
    return view.go(view.back(f"/clients?group={segment(view.field('group'))}"), "good", text)
