"""Who may send a request: hosts, origins and the API key.

A page of another site that a browser shows must not reach a server on loopback: its Origin differs from our Host, and
where its name has been bound to our address (DNS rebinding), the Host header has its name.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping

from weft.server.config import ServerConfig
from weft.server.errors import RequestError


def check_host(headers: Mapping[str, str], config: ServerConfig) -> None:
    """Refuses a Host header that is neither an address, nor localhost, nor a name that was allowed."""
    given = headers.get("host", "")
    host = _name(given)
    if host in ("localhost", config.host.lower(), *(one.lower() for one in config.allowed_hosts)) or _is_address(host):
        return
    raise RequestError(421, f"the Host header is {given[:100]!r}; expected localhost, an address, or an --allow-host")


def check_origin(headers: Mapping[str, str]) -> None:
    """Refuses requests that a page of another origin makes."""
    origin = headers.get("origin")
    if origin is None:
        return
    scheme, _, place = origin.lower().partition("://")
    if scheme in ("http", "https") and place == headers.get("host", "").lower():
        return
    raise RequestError(403, f"the Origin is {origin[:100]!r}; expected the server's own page")


def check_key(headers: Mapping[str, str], config: ServerConfig, given: str | None = None) -> None:
    """Compares the API key in constant time."""
    if config.api_key is None:
        return
    if given is None:
        kind, _, value = headers.get("authorization", "").partition(" ")
        sent = value.strip().encode("latin-1") if kind.lower() == "bearer" else b""  # as Starlette decodes headers
    else:
        sent = given.encode("utf-8", "surrogatepass")
    if not hmac.compare_digest(sent, config.api_key.encode("utf-8")):
        raise RequestError(
            401, "the API key is missing or wrong; expected `Authorization: Bearer KEY`",
            headers={"WWW-Authenticate": "Bearer"},
        )  # fmt: skip


_HOST = re.compile(r"(?:\[([0-9a-f:.]+(?:%[\w.-]+)?)\]|([\w.-]+))(?::\d{0,5})?", re.IGNORECASE | re.ASCII)


def _name(host: str) -> str:
    """The host of a Host header without its port; an address of IPv6 without its brackets; "" of what is no host.

    >>> _name("[::1]:8000"), _name("Localhost"), _name("[::1]evil.example:80")
    ('::1', 'localhost', '')
    """
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else ""


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)
