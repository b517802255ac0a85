"""The shards of a cluster on one page."""

from starlette.responses import Response

from latermq_console.serving.console import View


async def cluster(view: View) -> Response:
    """Show what each shard has and does, and which do not answer. Raises LaterMQError."""
    states = await view.shards.states()
    known = [state.broker for state in states if state.broker is not None]
    return view.render(
        "cluster.html",
        states=states,
        silent=[state for state in states if state.broker is None],
        waiting=sum(
            each.waiting.delayed + each.waiting.backoff + each.waiting.ready_retries
            for each in known
        ),
        in_flight=sum(each.waiting.in_flight for each in known),
        sent_per_s=sum(max(0.0, state.sent_per_s) for state in states),
        done_per_s=sum(max(0.0, state.done_per_s) for state in states),
    )
