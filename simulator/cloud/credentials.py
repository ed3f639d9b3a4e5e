"""A service account of the simulator: a key file that Google's libraries use unchanged, and who signs with it."""

import base64
import binascii
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from runtime.errors import UserError

_KEY_BITS = 2048


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    email: str
    key: rsa.RSAPrivateKey

    def key_file(self, project: str, token_uri: str) -> dict[str, str]:
        pem = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return {
            "type": "service_account",
            "project_id": project,
            "private_key_id": "simulator",
            "private_key": pem.decode(),
            "client_email": self.email,
            "client_id": "100000000000000000001",
            "auth_uri": token_uri,
            "token_uri": token_uri,
            "universe_domain": "googleapis.com",
        }

    def claims(self, assertion: str) -> dict[str, Any] | None:
        """Of a JWT that this account has signed; None if it has not."""
        signed, _, signature = assertion.rpartition(".")
        try:
            self.key.public_key().verify(_decoded(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
            claims = json.loads(_decoded(signed.partition(".")[2]))
        except (InvalidSignature, binascii.Error, ValueError):
            return None
        return claims if isinstance(claims, dict) and claims.get("iss") == self.email else None


def service_account(project: str, path: Path) -> ServiceAccount:
    """With the key that a file already has, so that a restart leaves issued files good; else with a new one."""
    email = f"tradewind@{project}.iam.gserviceaccount.com"
    if not path.exists():
        return ServiceAccount(email, rsa.generate_private_key(public_exponent=65537, key_size=_KEY_BITS))
    try:
        held = json.loads(path.read_bytes())
        key = serialization.load_pem_private_key(held["private_key"].encode(), password=None)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is there and holds no key: {error}", "remove it, or give another file") from None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise UserError(f"{path} holds a key that is not RSA.", "remove it, or give another file")
    return ServiceAccount(email, key)


def write_key_file(account: ServiceAccount, project: str, token_uri: str, path: Path) -> None:
    """Whole or not at all, and for its owner's eyes only."""
    text = json.dumps(account.key_file(project, token_uri), indent=2)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.touch(mode=0o600)
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise UserError(
            f"The credentials cannot be written to {path}: {error}", "give a file in a folder of yours"
        ) from None


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
