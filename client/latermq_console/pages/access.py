"""Users with their rights, and limits: seen by who may, changed by admins."""

from typing import Final

from starlette.responses import Response

from latermq_console.reading.jobs import words_of
from latermq_console.serving.console import FormError, View
from latermq_proto.latermq.v1 import limit_pb2, user_pb2

PAGE: Final = 200
SCOPES: Final = {
    "client": limit_pb2.Limit.CLIENT, "group": limit_pb2.Limit.GROUP, "user": limit_pb2.Limit.USER,
}  # fmt: skip
RIGHTS: Final = ("pub", "sub", "browse", "body", "redrive", "purge")
NUMBERS: Final = ("sends_per_s", "bytes_per_s", "in_flight", "parked_polls")
NUMBER_MAX: Final = 1 << 40
HERE: Final = "/access"


async def access(view: View) -> Response:
    """Show users and limits."""
    desk = view.desk
    users, users_error = await desk.tried(
        desk.admin.users.ListUsers, user_pb2.ListUsersRequest(page_size=PAGE)
    )
    limits, limits_error = await desk.tried(
        desk.admin.limits.ListLimits, limit_pb2.ListLimitsRequest(page_size=PAGE)
    )
    return view.render(
        "access.html",
        users=users,
        users_error=words_of(users_error) if users_error else "",
        limits=limits,
        limits_error=words_of(limits_error) if limits_error else "",
        kinds=user_pb2.Grant.Kind,
        scopes={number: name for name, number in SCOPES.items()},
        rights=RIGHTS,
        me=view.session.user,
    )


async def switch_user(view: View) -> Response:
    """Disable a user, or let it in again."""
    name = view.path("user")
    if name == view.session.user:
        raise FormError("you would lock yourself out")
    disabled = view.field("disabled") == "yes"
    request = user_pb2.AlterUserRequest(access_key=name, disabled=disabled)
    await view.desk.call(view.desk.admin.users.AlterUser, request)
    return view.go(
        HERE, "good", f"{name} {'may not come in any more' if disabled else 'may come in'}"
    )


async def change_rights(view: View) -> Response:
    """Let a user do more on a topic's or group's pattern, or take rights on one away."""
    name, kind = view.field("user"), view.field("kind")
    rights = [right for right in RIGHTS if right in view.form.get("right", [])]
    if kind not in ("topic", "group") or not view.field("pattern"):
        raise FormError("say on which topic or group")
    grants = view.field("verb") == "grant"
    if grants and not rights:
        raise FormError("choose some rights")
    grant = user_pb2.Grant(kind=kind.upper(), pattern=view.field("pattern"), rights=rights)
    users = view.desk.admin.users
    request = user_pb2.ChangeGrantRequest(access_key=name, grant=grant)
    await view.desk.call(users.GrantRights if grants else users.RevokeRights, request)
    done = "may now" if grants else "may no longer"
    what = ", ".join(rights) or "do anything"
    return view.go(HERE, "good", f"{name} {done} {what} on {kind} {grant.pattern}")


async def set_limit(view: View) -> Response:
    """Limit a client, a group or a user."""
    limit = limit_pb2.Limit(scope=_scope(view), name=view.field("name") or "*")
    for number in NUMBERS:
        setattr(limit, number, view.whole(number, NUMBER_MAX))
    if not any(getattr(limit, number) for number in NUMBERS):
        raise FormError("say at least one limit")
    request = limit_pb2.SetLimitRequest(limit=limit)
    await view.desk.call(view.desk.admin.limits.SetLimit, request)
    return view.go(HERE, "good", f"limit of {view.field('scope')} {limit.name} set")


async def unset_limit(view: View) -> Response:
    """Take a limit away."""
    request = limit_pb2.UnsetLimitRequest(scope=_scope(view), name=view.field("name"))
    await view.desk.call(view.desk.admin.limits.UnsetLimit, request)
    return view.go(HERE, "good", f"{view.field('scope')} {request.name} is limited no longer")


def _scope(view: View) -> limit_pb2.Limit.Scope:
    scope = SCOPES.get(view.field("scope"))
    if scope is None:
        raise FormError(f"a limit is of a {', a '.join(SCOPES)}")
    return scope
