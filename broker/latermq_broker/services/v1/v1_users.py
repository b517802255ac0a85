"""latermq.v1 Users: create, alter, show, list, rotate, delete; grant and revoke.

The only place that makes secrets, and that tells one: once, to who made it. Changes are answered
when they are on the disk, whatever the flush policy: a right that was taken must not come back.
"""

import secrets
from typing import Final

from latermq_broker.catalog.access import RIGHTS_OF, Kind, Right, RightsOn, User, is_pattern
from latermq_broker.config.auth import ACCESS_KEY, ACCESS_KEY_RULE, SECRET, SECRET_RULE
from latermq_broker.errors import BadRequestError
from latermq_broker.services.auth.guard import root_user
from latermq_broker.services.call.answers import Caller, ok_status
from latermq_broker.services.call.names import shown
from latermq_broker.services.call.paging import page_of
from latermq_broker.services.clients.rooms import Rooms
from latermq_proto.latermq.v1 import user_pb2

USERS: Final = "/latermq.v1.Users"
SECRET_BYTES: Final = 24  # 192 bits, 32 characters

_KINDS: Final = {user_pb2.Grant.TOPIC: Kind.TOPIC, user_pb2.Grant.GROUP: Kind.GROUP}


def new_secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


class UsersService:
    def __init__(self, rooms: Rooms) -> None:
        self._users = rooms.engine.users
        self._committer = rooms.committer
        self._root = root_user(rooms.config.auth)

    async def create_user(
        self, request: user_pb2.CreateUserRequest, _: Caller
    ) -> user_pb2.SecretResponse:
        """Answer CreateUser of user.proto.

        Raises:
            BadRequestError: it exists, or key or secret are not as they must be.
            TooManyRequestsError: too many users.
        """
        self._check_changeable(request.access_key)
        secret = _secret(request.secret)
        user = self._users.create(
            request.access_key, secret, admin=request.admin, now_ms=self._committer.now_ms()
        )
        await self._committer.synced()
        return user_pb2.SecretResponse(status=ok_status(), user=_message(user), secret=secret)

    async def alter_user(
        self, request: user_pb2.AlterUserRequest, _: Caller
    ) -> user_pb2.UserResponse:
        """Answer AlterUser of user.proto. Raises NotFoundError."""
        self._check_changeable(request.access_key)
        user = self._users.alter(
            request.access_key,
            admin=request.admin if request.HasField("admin") else None,
            disabled=request.disabled if request.HasField("disabled") else None,
            now_ms=self._committer.now_ms(),
        )
        await self._committer.synced()
        return user_pb2.UserResponse(status=ok_status(), user=_message(user))

    def get_user(self, request: user_pb2.GetUserRequest, _: Caller) -> user_pb2.UserResponse:
        """Answer GetUser of user.proto. Raises NotFoundError."""
        if self._root is not None and request.access_key == self._root.access_key:
            return user_pb2.UserResponse(status=ok_status(), user=_message(self._root, True))
        user = self._users.get(_checked_key(request.access_key))
        return user_pb2.UserResponse(status=ok_status(), user=_message(user))

    def list_users(
        self, request: user_pb2.ListUsersRequest, _: Caller
    ) -> user_pb2.ListUsersResponse:
        """Answer ListUsers of user.proto."""
        named = {user.access_key: _message(user) for user in self._users.all()}
        if self._root is not None:
            named[self._root.access_key] = _message(self._root, True)
        page, token = page_of(sorted(named), str, request)
        return user_pb2.ListUsersResponse(
            status=ok_status(), users=[named[key] for key in page], next_page_token=token
        )

    async def rotate_user(
        self, request: user_pb2.RotateUserRequest, _: Caller
    ) -> user_pb2.SecretResponse:
        """Answer RotateUser of user.proto. Raises NotFoundError, BadRequestError."""
        self._check_changeable(request.access_key)
        secret = _secret(request.secret)
        user = self._users.rotate(request.access_key, secret, self._committer.now_ms())
        await self._committer.synced()
        return user_pb2.SecretResponse(status=ok_status(), user=_message(user), secret=secret)

    async def delete_user(
        self, request: user_pb2.DeleteUserRequest, _: Caller
    ) -> user_pb2.DeleteUserResponse:
        """Answer DeleteUser of user.proto. Raises NotFoundError."""
        self._check_changeable(request.access_key)
        self._users.delete(request.access_key, self._committer.now_ms())
        await self._committer.synced()
        return user_pb2.DeleteUserResponse(status=ok_status())

    async def grant_rights(
        self, request: user_pb2.ChangeGrantRequest, _: Caller
    ) -> user_pb2.UserResponse:
        """Answer GrantRights of user.proto. Raises NotFoundError, BadRequestError."""
        self._check_changeable(request.access_key)
        grants = [_rights_on(each) for each in (request.grant, *request.others)]
        if not all(rights for _, _, rights in grants):
            raise BadRequestError("a grant needs at least one right")
        user = self._users.grant_all(request.access_key, grants, self._committer.now_ms())
        await self._committer.synced()
        return user_pb2.UserResponse(status=ok_status(), user=_message(user))

    async def revoke_rights(
        self, request: user_pb2.ChangeGrantRequest, _: Caller
    ) -> user_pb2.UserResponse:
        """Answer RevokeRights of user.proto. Raises NotFoundError, BadRequestError."""
        self._check_changeable(request.access_key)
        grants = [
            (kind, pattern, rights or frozenset(RIGHTS_OF[kind]))
            for kind, pattern, rights in map(_rights_on, (request.grant, *request.others))
        ]
        user = self._users.revoke_all(request.access_key, grants, self._committer.now_ms())
        await self._committer.synced()
        return user_pb2.UserResponse(status=ok_status(), user=_message(user))

    def _check_changeable(self, access_key: str) -> None:
        """Check that a user may be changed here. Raises BadRequestError."""
        _checked_key(access_key)
        if self._root is not None and access_key == self._root.access_key:
            raise BadRequestError(f"user {access_key} is the configuration's; change it there")


def _checked_key(access_key: str) -> str:
    if ACCESS_KEY.fullmatch(access_key) is None:
        raise BadRequestError(f"access key {shown(access_key)} is not {ACCESS_KEY_RULE}")
    return access_key


def _secret(given: str) -> str:
    """Check a secret, or make one. Raises BadRequestError, which does not repeat it."""
    if given and SECRET.fullmatch(given) is None:
        raise BadRequestError(f"the secret of {len(given)} characters is not {SECRET_RULE}")
    return given or new_secret()


def _kind(grant: user_pb2.Grant) -> Kind:
    kind = _KINDS.get(grant.kind)
    if kind is None:
        raise BadRequestError(f"grant kind {int(grant.kind)} is neither TOPIC nor GROUP")
    if not is_pattern(grant.pattern):
        raise BadRequestError(
            f"pattern {shown(grant.pattern)} is not a name, a beginning followed by *, or *"
        )
    return kind


def _rights_on(grant: user_pb2.Grant) -> RightsOn:
    """Read a grant. Raises BadRequestError."""
    kind = _kind(grant)
    return kind, grant.pattern, _rights(grant)


def _rights(grant: user_pb2.Grant) -> frozenset[Right]:
    allowed = {right.value: right for right in RIGHTS_OF[_KINDS[grant.kind]]}
    for word in grant.rights:
        if word not in allowed:
            raise BadRequestError(
                f"right {shown(word)} is none of a {_KINDS[grant.kind].value}: there are "
                f"{', '.join(allowed)}"
            )
    return frozenset(allowed[word] for word in grant.rights)


def _message(user: User, configured: bool = False) -> user_pb2.User:
    """Show all of a user but the secret."""
    return user_pb2.User(
        access_key=user.access_key,
        admin=user.admin,
        disabled=user.disabled,
        created_at_ms=user.created_ms,
        rotated_at_ms=user.rotated_ms,
        grants=[
            user_pb2.Grant(
                kind=user_pb2.Grant.Kind.Value(grant.kind.upper()),
                pattern=grant.pattern,
                rights=grant.rights,
            )
            for grant in user.grants
        ],
        configured=configured,
    )
