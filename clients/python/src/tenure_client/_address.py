"""The URL of a daemon with its TLS files, and the token: given, or from the environment as in `tenure`."""

from __future__ import annotations

import contextlib
import http.client
import os
import ssl
from urllib.parse import parse_qsl, urlsplit

_EXPECTED = "expected http://HOST:PORT or https://HOST:PORT?tls_ca=FILE"
_FILES = ("tls_ca", "tls_cert", "tls_key")


class Address:
    def __init__(self, url: str, context: ssl.SSLContext | None) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
            pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError as error:
            raise _wrong(url, str(error)) from None
        if parts.scheme not in ("http", "https") or not self._host:
            raise _wrong(url, "it is not the URL of a daemon")
        if parts.username is not None or parts.fragment:
            raise _wrong(url, "it has credentials or a fragment")
        files = dict(pairs)
        if len(files) < len(pairs) or not set(files) <= set(_FILES) or not all(files.values()):
            raise _wrong(url, f"its query may have {', '.join(_FILES)}, each once")
        if files and (parts.scheme == "http" or context):
            raise _wrong(url, "its TLS files are for https:// without an ssl_context")
        self.prefix = parts.path.rstrip("/")
        self._files, self._seen = files, _state(files)
        self._context = (context or _context(files)) if parts.scheme == "https" else None
        try:
            self.connection(0.0)
        except http.client.HTTPException as error:
            raise _wrong(url, str(error)) from None

    def connection(self, timeout: float) -> http.client.HTTPConnection:
        """A new connection, not yet open."""
        if self._context:
            self._renew()
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._context)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)

    def _renew(self) -> None:
        """Takes replaced TLS files. While they cannot be used, the last ones count."""
        seen = _state(self._files)
        if seen != self._seen:
            with contextlib.suppress(ValueError):
                self._context, self._seen = _context(self._files), seen


def _state(files: dict[str, str]) -> list[tuple[int, int, int] | None]:
    """Which files these are now: it changes when one is replaced or written."""

    def of(file: str) -> tuple[int, int, int] | None:
        try:
            found = os.stat(file)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size

    return [of(file) for file in files.values()]


def _context(files: dict[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=files.get("tls_ca"))
        if "tls_cert" in files:
            context.load_cert_chain(files["tls_cert"], files.get("tls_key"))
    except OSError as error:
        raise ValueError(f"the TLS files {files} cannot be used: {error}") from error
    return context


def _wrong(url: str, why: str) -> ValueError:
    # Without what may be a password.
    shown = url.split("?")[0].rpartition("@")[2]
    return ValueError(f"the URL {shown!r}: {why}; {_EXPECTED}")


class Token:
    """The token that was given, else that in `TENURE_TOKEN_FILE`, else that in `TENURE_TOKEN`.

    That in the file may be replaced: it is read for each call. While it cannot be read, the last one counts.
    """

    def __init__(self, given: str | None) -> None:
        self._file = os.environ.get("TENURE_TOKEN_FILE") if given is None else None
        self._last = _checked((os.environ.get("TENURE_TOKEN", "") if given is None else given).strip())
        if self._file:
            self._last = self._read(self._file)

    def header(self) -> dict[str, str]:
        if self._file:
            with contextlib.suppress(ValueError):
                self._last = self._read(self._file)
        return {"Authorization": f"Bearer {self._last}"} if self._last else {}

    def _read(self, file: str) -> str:
        try:
            with open(file, encoding="utf-8") as opened:
                return _checked(opened.read().strip())
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"TENURE_TOKEN_FILE cannot be read: {error}") from error


def _checked(token: str) -> str:
    if not (token.isascii() and token.isprintable()):
        raise ValueError("the token has characters that no token has")
    return token
