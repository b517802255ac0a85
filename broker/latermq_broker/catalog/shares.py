"""How much of what is bounded one user may have, and what is kept for admins.

Whoever chooses client ids, topics and groups freely cannot take all there is of them: a user has a
part, and the last of each kind is for admins, who can always come in and mend. Where nobody has a
name, all there is is everybody's.
"""

from latermq_broker.catalog.access import User
from latermq_broker.config.auth import AuthConfig
from latermq_broker.errors import TooManyRequestsError


class Shares:
    def __init__(self, config: AuthConfig) -> None:
        self._user_percent = config.user_share_percent
        self._reserve_percent = config.admin_reserve_percent

    def check(
        self,
        user: User | None,
        what: str,
        setting: str,
        most: int,
        held: int,
        of_user: int,
        more: int = 1,
    ) -> None:
        """Tell whether there is room for so many more.

        Args:
            what: the plural, as the error has it; `setting` names the bound `most`.
            held: what there is, `of_user` what of it is the user's.

        Raises:
            TooManyRequestsError: there is not.
        """
        bounded = user is not None and not user.admin
        kept = most * self._reserve_percent // 100 if bounded else 0
        wanted = f" and {more} more are asked for" if more > 1 else ""
        if held + more > most - kept:
            for_admins = f", the last {kept} of them for admins (auth.admin_reserve_percent)"
            raise TooManyRequestsError(
                f"there are {held} {what}{wanted}, at most {most} may be ({setting})"
                f"{for_admins if kept else ''}"
            )
        if not bounded or user is None:
            return
        part = max(1, most * self._user_percent // 100)
        if of_user + more > part:
            raise TooManyRequestsError(
                f"user {user.access_key} has {of_user} {what}{wanted}, at most {part} of {most} "
                f"may be one user's ({setting}, auth.user_share_percent)"
            )


def key_of(user: User | None) -> str:
    """Name whose share something counts in: a user's access key; "" is nobody's."""
    return user.access_key if user is not None else ""


def maker(user: User | None) -> str:
    """Name whose share counts what a user made; "" is nobody's: admins have none."""
    return user.access_key if user is not None and not user.admin else ""


def count_up(counts: dict[str, int], key: str, count: int = 1) -> None:
    """Count what is a user's; of none nothing stays."""
    if not key:
        return
    left = counts.get(key, 0) + count
    if left > 0:
        counts[key] = left
    else:
        counts.pop(key, None)
