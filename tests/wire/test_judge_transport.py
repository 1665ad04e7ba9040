"""One POST and its answer: shared connections, proxies, TLS, and no secret in any text, against real servers."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from reward_client import transport
from reward_client.transport import BadBody, NoAnswer, NoConnection, Response, post_json
from sql_agent.testing.server import Reply, openai_server

TOKEN = "sk-very-secret-0123456789"
PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


@pytest.fixture(autouse=True)
def no_proxy_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def post(url: str, timeout_s: float = 20.0) -> Response:
    return await post_json(f"{url}/chat/completions", {"a": "药"}, token=TOKEN, timeout_s=timeout_s, max_bytes=1 << 16)


async def many(url: str, n: int, at_once: int) -> None:
    places = asyncio.Semaphore(at_once)

    async def one() -> None:
        async with places:
            assert (await post(url)).status == 200

    await asyncio.gather(*(one() for _ in range(n)))


def test_calls_under_way_share_connections_and_the_last_one_closes_them() -> None:
    with openai_server(lambda _: Reply(body={"ok": 1}, pause_s=0.02), keep_alive=True) as server:
        asyncio.run(many(server.base_url, 40, 4))
        assert 4 <= server.n_connections <= 8 and len(server.requests) == 40
        assert not transport._pools
        threads = [threading.Thread(target=asyncio.run, args=[many(server.base_url, 8, 2)]) for _ in range(3)]
        for thread in threads:  # an event loop each
            thread.start()
        for thread in threads:
            thread.join()
        assert len(server.requests) == 64 and not transport._pools


def test_a_server_that_closes_its_connections_loses_no_call() -> None:
    with openai_server(lambda _: {"ok": 1}) as server:  # HTTP/1.0
        asyncio.run(many(server.base_url, 40, 4))
        assert server.n_connections == len(server.requests) == 40


def test_a_call_that_is_given_up_leaves_nothing_open() -> None:
    async def give_up(url: str) -> None:
        with pytest.raises(TimeoutError):
            await post(url, timeout_s=0.3)
        assert not transport._pools

    with openai_server(lambda _: Reply(body={"ok": 1}, pause_s=3600.0), keep_alive=True) as server:
        asyncio.run(give_up(server.base_url))


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_proxy_variable_counts_for_other_hosts(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with openai_server(lambda _: {"ok": 1}) as server:
        address = server.base_url.removesuffix("/v1").removeprefix("http://")
        monkeypatch.setenv(variable, f"http://me:pass-word@{address}")
        assert asyncio.run(post("http://judge.example/v1")).status == 200
        asyncio.run(post(server.base_url))
    proxied, direct = server.requests
    assert proxied.path == "http://judge.example/v1/chat/completions" and direct.path == "/v1/chat/completions"
    assert proxied.headers["proxy-authorization"].startswith("Basic ")
    assert proxied.headers["authorization"] == f"Bearer {TOKEN}" and "proxy-authorization" not in direct.headers


def test_no_proxy_names_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "judge.invalid")
    with pytest.raises(NoConnection, match=r"judge\.invalid"):
        asyncio.run(post("http://judge.invalid/v1"))


@pytest.mark.parametrize("proxy", ["socks5://me:pass-word@127.0.0.1:9", "http://me:pass-word@127.0.0.1:9", "http://"])
def test_a_proxy_that_cannot_be_used_is_a_fault_without_its_password(
    proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(NoAnswer) as caught:
        asyncio.run(post("http://judge.example/v1"))
    assert "pass-word" not in str(caught.value) and TOKEN not in str(caught.value)


def test_passwords_of_netrc_go_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("default login me password pass-word\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with openai_server(lambda _: {"ok": 1}) as server:
        url = f"{server.base_url}/chat/completions"
        asyncio.run(post_json(url, {}, token="", timeout_s=20.0, max_bytes=1 << 16))
    assert "authorization" not in server.requests[0].headers


def test_an_error_keeps_its_status_whatever_its_body_is() -> None:
    with openai_server(lambda _: Reply(status=500, body="x" * (1 << 17))) as server:
        assert asyncio.run(post(server.base_url)).status == 500
    with openai_server(lambda _: Reply(body="x" * (1 << 17))) as server, pytest.raises(BadBody):
        asyncio.run(post(server.base_url))


@pytest.fixture
def certificate(tmp_path: Path) -> Iterator[Path]:
    """A certificate for 127.0.0.1 with its key, signed by itself."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.datetime.now(datetime.UTC)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1))
    builder = builder.not_valid_after(now + datetime.timedelta(days=1)).add_extension(alternative, critical=True)
    signed = builder.sign(key, hashes.SHA256())
    path = tmp_path / "certificate.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + signed.public_bytes(serialization.Encoding.PEM))
    transport._tls.cache_clear()
    yield path
    transport._tls.cache_clear()


def test_a_certificate_counts_where_it_is_trusted_alone(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    with openai_server(lambda _: {"ok": 1}, keep_alive=True, tls=tls) as server:
        with pytest.raises(NoConnection, match="certificate"):
            asyncio.run(post(server.base_url))
        assert not server.requests
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        transport._tls.cache_clear()
        started_s = time.monotonic()
        asyncio.run(many(server.base_url, 6, 2))
        assert len(server.requests) == 6 and time.monotonic() - started_s < 20
