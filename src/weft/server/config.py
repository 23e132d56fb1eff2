"""Settings of the server: where it listens, what it keeps, and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MOST_INPUTS = 256  # of a request
LONGEST_INPUT = 100_000  # characters
LONGEST_TABLE = 1_000_000  # characters of a table of series
MOST_CHARACTERS = 1_000_000  # of all texts of a request, each counted as often as it may be answered
MOST_VALUES = 2_000_000  # of an answer: of all layers of a probe, or the probabilities of all labels of all texts


@dataclass(frozen=True)
class ServerConfig:
    """Settings of `weft serve`.

    Attributes:
        host: The address to listen on.
        port: The port; 0: any free one.
        api_key: What clients have to send as `Authorization: Bearer KEY`; None: no key is needed.
        allowed_hosts: Names that requests may have in their Host header besides localhost and addresses.
        runs: The folder whose runs `/weft/runs` lists; None: there is no such list.
        sessions: The folder that sessions are saved in; None: sessions cannot be saved.
        reload: Load a run again when its weights change on disk.
        log_requests: Log method, path and status of every request.
        max_body: The largest body of a request, in bytes.
        max_queue: How many requests of a model may wait.
        max_tokens: The most tokens that a request may generate.
        max_requests: The most requests that are answered at the same time.
        timeout: Seconds that a request may take.
        read_timeout: Seconds that a client may take to send a request.
        batch_size: The most texts that are predicted together.
        max_sessions: How many sessions are kept; the least recently used one is dropped.
        session_idle: Seconds after which an unused session is dropped.
        session_tokens: The most tokens of a session.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    runs: Path | None = None
    sessions: Path | None = None
    reload: bool = False
    log_requests: bool = False
    max_body: int = 1 << 20
    max_queue: int = 256
    max_tokens: int = 4096
    max_requests: int = 1000
    timeout: float = 60.0
    read_timeout: float = 10.0
    batch_size: int = 64
    max_sessions: int = 100
    session_idle: float = 3600.0
    session_tokens: int = 100_000

    @property
    def max_saved(self) -> int:
        """The most sessions that are saved on the disk."""
        return 10 * self.max_sessions

    @property
    def request_tokens(self) -> int:
        """The most tokens of a request: of its prompts, to generate, and their alternatives, for each choice."""
        return 32 * max(4096, self.max_tokens)

    @property
    def model_tokens(self) -> int:
        """The most tokens of all texts that a model generates at the same time."""
        return 16 * self.request_tokens
