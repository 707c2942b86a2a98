"""Seals resume contexts: AES-GCM, bound to the request that they belong to.

A context that was changed, or put into another request's row, does not open. Nothing here logs,
and no error holds a part of a context.
"""

from __future__ import annotations

import json
import os
import secrets
from typing import TYPE_CHECKING

from democrai_osguard.approvals.covering import encoded
from democrai_osguard.approvals.errors import ResumeFailed, ResumeTampered
from democrai_osguard.approvals.keys import ID_BYTES, KeyFile
from democrai_osguard.directories import state_dir

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from democrai_osguard.access import Rule, Subject
    from democrai_osguard.approvals.records import Origin, PendingRequest

KEYS = ("keys", "resume.keys")  # in the state folder
CONTEXT_LIMIT = 64 * 1024  # bytes of JSON
_FORMAT = b"\x01"
_NONCE_BYTES = 12


class Vault:
    """Seals with the newest key, opens with any that is still there.

    Without a file of keys it is the state folder's, which is made on first use.
    """

    def __init__(self, keys: KeyFile | None = None) -> None:
        self.keys = keys or KeyFile(os.path.join(state_dir(), *KEYS))

    def seal(self, context: Mapping[str, object], bound_to: bytes) -> bytes:
        """Return the context sealed; raise ResumeFailed where it is no JSON document."""
        try:
            text = json.dumps(dict(context), allow_nan=False).encode("ascii")
        except (TypeError, ValueError, RecursionError):
            # Without a cause: its text may quote the context.
            raise ResumeFailed("a resume context is a JSON document") from None
        if len(text) > CONTEXT_LIMIT:
            raise ResumeFailed(f"a resume context has at most {CONTEXT_LIMIT} bytes")
        key, nonce = self.keys.load().newest, secrets.token_bytes(_NONCE_BYTES)
        head = _FORMAT + key.id
        return head + nonce + _cipher(key.secret).encrypt(nonce, text, head + bound_to)

    def open(self, sealed: bytes, bound_to: bytes) -> dict[str, object]:
        """Return the context; raise ResumeTampered where it is not this request's, untouched."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - costs more than a check

        head, rest = sealed[: 1 + ID_BYTES], sealed[1 + ID_BYTES :]
        if head[:1] != _FORMAT or len(rest) <= _NONCE_BYTES:
            raise ResumeTampered("the sealed context is damaged")
        key = self.keys.load().find(head[1:])
        if key is None:
            raise ResumeFailed("the key that sealed the context is gone")
        nonce, body = rest[:_NONCE_BYTES], rest[_NONCE_BYTES:]
        try:
            text = _cipher(key.secret).decrypt(nonce, body, head + bound_to)
        except InvalidTag:
            raise ResumeTampered("the sealed context was changed or moved") from None
        context: dict[str, object] = json.loads(text)
        return context


def binding(
    request_id: str, subject: Subject, rule: Rule, origin: Origin, action: str | None
) -> bytes:
    """Return what a context is bound to: all that says whose it is, in one spelling."""
    fields = [
        request_id, str(subject.type), subject.name, str(rule.resource_type),
        str(rule.operation), encoded(rule.target).hex(), origin.session_key, origin.user_id,
        origin.organization_id, origin.task_id, action,
    ]  # fmt: skip
    return json.dumps(fields).encode("ascii")


def binding_of(request: PendingRequest) -> bytes:
    """Return what the context of a stored request is bound to."""
    return binding(request.id, request.subject, request.rule, request.origin, request.resume_action)


def _cipher(secret: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above

    return AESGCM(secret)
