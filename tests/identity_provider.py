"""An identity provider of OpenID Connect on a socket, that says what a test wants it to say."""

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CLIENT_ID, CLIENT_SECRET = "outbox", "a-secret-of-the-client"


@dataclass
class Provider:
    """`claims` go into the ID token, over what is right; None takes one out."""

    issuer: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    userinfo: dict[str, Any] = field(default_factory=dict)
    described: dict[str, Any] = field(default_factory=dict)
    key: rsa.RSAPrivateKey = KEY
    algorithm: str = "RS256"
    asked: list[str] = field(default_factory=list)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def sign_in(self, address: str) -> str:
        """What a browser gets from the authorization endpoint: where it goes back to."""
        query = {name: value[0] for name, value in parse_qs(urlsplit(address).query).items()}
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        back = urlsplit(query["redirect_uri"]).path
        return f"{back}?code={code}&state={query['state']}"

    def description(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "jwks_uri": f"{self.issuer}/keys",
            **self.described,
        }

    def keys(self) -> dict[str, Any]:
        key = jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
        return {"keys": [{**key, "kid": "one", "use": "sig", "alg": "RS256"}]}

    def token(self, sent: dict[str, str]) -> dict[str, Any] | None:
        """The answer to the code; None where code, secret or verifier are not right."""
        asked = self.codes.pop(sent.get("code", ""), None)
        if asked is None or sent.get("client_secret") != CLIENT_SECRET:
            return None
        digest = hashlib.sha256(sent.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if challenge != asked.get("code_challenge"):
            return None
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "sub": "248289761001",
            "iat": now,
            "exp": now + 300,
            "auth_time": now,
            "nonce": asked.get("nonce"),
            "email": "jo@example.com",
            "email_verified": True,
            "groups": ["outbox"],
            **self.claims,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        key: Any = "a shared secret that everybody knows" if self.algorithm == "HS256" else self.key
        key = None if self.algorithm == "none" else key
        id_token = jwt.encode(claims, key, self.algorithm, headers={"kid": "one"})
        return {"access_token": "an-access-token", "token_type": "Bearer", "id_token": id_token}


@contextmanager
def running() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = urlsplit(self.path).path
            provider.asked.append(path)
            answers = {
                "/.well-known/openid-configuration": provider.description,
                "/keys": provider.keys,
                "/userinfo": lambda: provider.userinfo,
            }
            self.answer(answers[path]() if path in answers else None)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.answer(provider.token({n: v[0] for n, v in parse_qs(body).items()}))

        def answer(self, document: dict[str, Any] | None) -> None:
            body = json.dumps(document or {"error": "invalid_request"}).encode()
            self.send_response(200 if document is not None else 400)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
