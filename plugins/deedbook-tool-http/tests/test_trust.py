"""TLS: the name in the URL is the one that the certificate has to have, whatever address was connected to."""

import datetime as dt
import socket
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "api.example.com"


def certificate(name, folder):
    """Write a certificate for *name* that vouches for itself; return the paths of it and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1)).not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    return paths


@pytest.fixture
def secured(server, lab, operation, monkeypatch):
    """Let the server speak TLS with a certificate for the name that is given, and the ability reach it as `NAME`."""

    def secure(name, *, trusted=True):
        public, private = certificate(name, lab.path)
        server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.context.load_cert_chain(public, private)
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", server.port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **more: found)
        place = f"{NAME}:{server.port}"
        trust = {"ca": public.name} if trusted else {}
        operation(url=f"https://{place}/a", hosts=[place], private=[place], insecure=None, **trust)

    return secure


def test_certificate_for_the_name_is_trusted_at_the_address_that_was_checked(secured, ask, server):
    secured(NAME)
    assert ask()["body"] == {"ok": True}
    assert server.header("host") == f"{NAME}:{server.port}"


def test_certificate_for_another_name_is_refused(secured, fails, server):
    secured("evil.example")
    error = fails()
    assert (error.code, error.retryable) == ("HTTP_FAILED", False)
    assert "no trusted connection" in error.message
    assert server.requests == []


def test_certificate_that_nobody_vouches_for_is_refused(secured, fails, server, monkeypatch, lab):
    secured(NAME, trusted=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(lab.path / f"{NAME}.pem"))
    error = fails()
    assert "no trusted connection" in error.message
    assert server.requests == []
