"""Settings of the room `[auth]`: who may come in at all. Users and rights are in the log."""

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from latermq_broker.config.number_bounds import check_minima
from latermq_broker.errors import ConfigError

ACCESS_KEY: Final = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
ACCESS_KEY_RULE: Final = "1 to 64 of a-z A-Z 0-9 _ - ."
SECRET_CHARACTERS_MIN: Final = 16  # of a new one; shorter ones that there are go on
SECRET: Final = re.compile(rf"[!-~]{{{SECRET_CHARACTERS_MIN},128}}")
SECRET_RULE: Final = f"{SECRET_CHARACTERS_MIN} to 128 printable ASCII characters without blanks"
_FORMER_SECRET: Final = re.compile(r"[!-~]{8,128}")
_FORMER_SECRET_RULE: Final = "8 to 128 printable ASCII characters without blanks"


class OpenBroker(Enum):
    """What to do about listening beyond this machine while everybody may do everything."""

    WARN = "warn"  # serve, and say so at every start
    REFUSE = "refuse"  # do not start
    ALLOW = "allow"  # serve: something else keeps the wrong people out


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    enabled: bool = False  # every call is signed by a user who may do what it asks
    root_access_key: str = ""  # an admin who is not stored; "": only the stored users
    root_secret_key: str = field(default="", repr=False)
    certificate_users: bool = False  # an unsigned call is the user's whom its certificate names
    clock_skew_ms_max: int = 900_000  # of a signature's date against our clock; 0: any date
    user_share_percent: int = 50  # of sessions, topics, groups, waits, dedup ids …: one's
    admin_reserve_percent: int = 5  # of each of them: kept for admins
    open_beyond_loopback: OpenBroker = OpenBroker.WARN

    def __post_init__(self) -> None:
        if bool(self.root_access_key) != bool(self.root_secret_key):
            raise ConfigError("auth.root_access_key", "key and secret are given together")
        if self.root_access_key and ACCESS_KEY.fullmatch(self.root_access_key) is None:
            raise ConfigError("auth.root_access_key", f"must be {ACCESS_KEY_RULE}")
        if self.root_secret_key and _FORMER_SECRET.fullmatch(self.root_secret_key) is None:
            raise ConfigError("auth.root_secret_key", f"must be {_FORMER_SECRET_RULE}")
        if not 1 <= self.user_share_percent <= 100:
            raise ConfigError("auth.user_share_percent", "must be 1 to 100")
        if not 0 <= self.admin_reserve_percent <= 90:
            raise ConfigError("auth.admin_reserve_percent", "must be 0 to 90")
        check_minima("auth", self, "clock_skew_ms_max", "admin_reserve_percent")
