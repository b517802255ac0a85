"""Who a client is to a broker that asks: an access key, and the signature made with its secret."""

import hmac
import os
import time
from dataclasses import dataclass, field
from typing import Final

ACCESS_KEY_VARIABLE: Final = "LATERMQ_ACCESS_KEY"
SECRET_KEY_VARIABLE: Final = "LATERMQ_SECRET_KEY"

Headers = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Credentials:
    access_key: str
    secret: str = field(repr=False)
    _second: int = field(default=-1, init=False, repr=False)
    _headers: Headers = field(default=(), init=False, repr=False)

    def headers(self) -> Headers:
        """Return the headers that sign a call made now: the same ones for a second."""
        second = int(time.time())
        if second != self._second:
            self._second, self._headers = second, self._signed(second)
        return self._headers

    def _signed(self, second: int) -> Headers:
        # Not the form of RocketMQ's clients, 20240131T235959Z: a broker takes that for any zone.
        date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(second))
        signature = hmac.digest(self.secret.encode(), date.encode(), "sha1").hex()
        return (
            ("x-mq-date-time", date),
            (
                "authorization",
                f"MQv2-HMAC-SHA1 Credential={self.access_key}, SignedHeaders=x-mq-date-time, "
                f"Signature={signature}",
            ),
        )


def credentials_of(access_key: str | None, secret: str | None) -> Credentials | None:
    """Return what is given, else what the environment has; None: neither, calls are not signed.

    Raises:
        ValueError: one of the two is missing, or has half of a surrogate pair.
    """
    names = ("access_key", "secret")
    if access_key is None and secret is None:
        access_key = os.environ.get(ACCESS_KEY_VARIABLE)
        secret = os.environ.get(SECRET_KEY_VARIABLE)
        names = (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE)
    if not isinstance(access_key, str | None) or not isinstance(secret, str | None):
        raise TypeError("access_key and secret must be str or None")  # and nothing of their value
    if not access_key and not secret:
        return None
    if not access_key or not secret:
        raise ValueError("an access key and its secret are given together")
    for name, value in zip(names, (access_key, secret), strict=True):
        try:
            value.encode()
        except UnicodeEncodeError:  # which has the value with it
            raise ValueError(f"{name} must be text that UTF-8 can hold") from None
    return Credentials(access_key, secret)
