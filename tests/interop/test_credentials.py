"""The official clients with an access key and a secret."""

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


class TestGoClient(CredentialsCases):
    @pytest.fixture
    def signed_in(self, tmp_path: Path) -> SignedIn:
        try:
            command = foreign.command("go", INSTALL_TIMEOUT_S)
        except foreign.UnavailableError as reason:
            pytest.skip(str(reason))
        return lambda key, secret: OfficialClient(tmp_path, command, environment(key, secret))


class TestJavaClient(CredentialsCases):
    @pytest.fixture
    def signed_in(self, tmp_path: Path) -> SignedIn:
        try:
            command = foreign.command("java", INSTALL_TIMEOUT_S)
        except foreign.UnavailableError as reason:
            pytest.skip(str(reason))
        return lambda key, secret: OfficialClient(tmp_path, command, environment(key, secret))
