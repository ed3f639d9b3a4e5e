"""A service account's key, as Google hands it out; only its `token_uri` leads to the stand-in."""

import functools
import json
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.clouds.stand_in.state import PROJECT


def write_key(path: Path, token_uri: str) -> Path:
    key = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "1",
        "private_key": _private_key(),
        "client_email": f"tradewind@{PROJECT}.iam.gserviceaccount.com",
        "client_id": "1",
        "token_uri": token_uri,
    }
    path.write_text(json.dumps(key))
    return path


@functools.cache
def _private_key() -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    encoded = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return encoded.decode()
