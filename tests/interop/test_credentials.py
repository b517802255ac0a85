"""The official clients with an access key and a secret."""

import os
import sys
from pathlib import Path

import pytest

from interop import foreign
from interop.credentials_cases import CredentialsCases, SignedIn, environment
from interop.credentials_cases import broker as broker
from interop.credentials_cases import name as name
from interop.credentials_cases import users as users
from interop.official import SCRIPT, OfficialClient

INSTALL_TIMEOUT_S = 90.0
ALL = pytest.mark.skipif(
    os.environ.get("LATERMQ_INTEROP_ALL") != "1", reason="LATERMQ_INTEROP_ALL=1 runs these"
)


class TestPythonClient(CredentialsCases):
    @pytest.fixture
    def signed_in(self, tmp_path: Path) -> SignedIn:
        command = (sys.executable, str(SCRIPT))
        return lambda key, secret: OfficialClient(tmp_path, command, environment(key, secret))


class TestNodeClient(CredentialsCases):
    @pytest.fixture
    def signed_in(self, tmp_path: Path) -> SignedIn:
        try:
            command = foreign.command("node", INSTALL_TIMEOUT_S)
        except foreign.UnavailableError as reason:
            pytest.skip(str(reason))
        return lambda key, secret: OfficialClient(tmp_path, command, environment(key, secret))


@ALL
class TestGoClient(CredentialsCases):
    @pytest.fixture
    def signed_in(self, tmp_path: Path) -> SignedIn:
        try:
            command = foreign.command("go", foreign.BUILD_TIMEOUT_S)
        except foreign.UnavailableError as reason:
            pytest.skip(str(reason))
        return lambda key, secret: OfficialClient(tmp_path, command, environment(key, secret))


@ALL
class TestJavaClient(CredentialsCases):
    @pytest.fixture
    def signed_in(self, tmp_path: Path) -> SignedIn:
        try:
            command = foreign.command("java", foreign.BUILD_TIMEOUT_S)
        except foreign.UnavailableError as reason:
            pytest.skip(str(reason))
        return lambda key, secret: OfficialClient(tmp_path, command, environment(key, secret))
