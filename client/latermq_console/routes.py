"""Every address of the console, and the function that answers it."""

from starlette.routing import Route

from latermq_console.pages import (
    access,
    change_group,
    change_topic,
    clients,
    cluster,
    dead_letters,
    groups,
    letter_jobs,
    messages,
    overview,
    pending,
    schedules,
)
from latermq_console.pages.sign_in import SignIn, sign_out
from latermq_console.serving.console import Console, Handler


def routes(console: Console) -> list[Route]:
    sign_in = SignIn(console)

    def page(path: str, handler: Handler, method: str = "GET") -> Route:
        return Route(path, console.page(handler), methods=[method])

    return [
        Route("/sign-in", sign_in.show, methods=["GET"]),
        Route("/sign-in", sign_in.enter, methods=["POST"]),
        page("/sign-out", sign_out, "POST"),
        page("/", overview.overview),
        page("/broker", overview.broker),
        page("/cluster", cluster.cluster),
        page("/go", overview.jump),
        page("/dead", dead_letters.groups),
        page("/dead/{group}", dead_letters.group),
        page("/dead/{group}/letters/{offset}", dead_letters.letter),
        page("/dead/{group}/change", letter_jobs.plan),
        page("/dead/{group}/change", letter_jobs.begin, "POST"),
        page("/jobs", letter_jobs.jobs),
        page("/jobs/{id}", letter_jobs.show),
        page("/jobs/{id}/stop", letter_jobs.stop, "POST"),
        page("/groups", groups.groups),
        page("/groups/{group}", groups.group),
        page("/groups/{group}", change_group.alter, "POST"),
        page("/groups/{group}/reset", change_group.plan_reset),
        page("/groups/{group}/reset", change_group.reset, "POST"),
        page("/groups/{group}/delete", change_group.plan_delete),
        page("/groups/{group}/delete", change_group.delete, "POST"),
        page("/topics", groups.topics),
        page("/topics", change_topic.create, "POST"),
        page("/topics/{topic}", groups.topic),
        page("/topics/{topic}", change_topic.alter, "POST"),
        page("/topics/{topic}/delete", change_topic.plan_delete),
        page("/topics/{topic}/delete", change_topic.delete, "POST"),
        page("/pending", pending.pending),
        page("/pending/change", pending.change, "POST"),
        page("/schedules", schedules.schedules),
        page("/schedules/change", schedules.change, "POST"),
        page("/transactions", pending.transactions),
        page("/messages", messages.search),
        page("/messages/{id:path}", messages.message),  # clients may put a slash in it
        page("/clients", clients.clients),
        page("/client", clients.client),
        page("/client/kick", clients.kick, "POST"),
        page("/access", access.access),
        page("/access/users/{user}", access.switch_user, "POST"),
        page("/access/rights", access.change_rights, "POST"),
        page("/access/limits", access.set_limit, "POST"),
        page("/access/limits/unset", access.unset_limit, "POST"),
        page("/{rest:path}", overview.nowhere),
    ]
