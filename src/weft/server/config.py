"""Settings of the server: where it listens, what it keeps, and its limits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from weft.config import Settings, setting

MOST_INPUTS = 256  # of a request
LONGEST_INPUT = 100_000  # characters
LONGEST_TABLE = 1_000_000  # characters of a table of series
MOST_CHARACTERS = 1_000_000  # of all texts of a request, each counted as often as it may be answered
MOST_VALUES = 2_000_000  # of an answer: of all layers of a probe, or the probabilities of all labels of all texts


@dataclass(frozen=True)
class ServerConfig(Settings):
    """Settings of `weft serve`; those with an option are options of the command."""

    host: str = setting("127.0.0.1", "the address to listen on", option="--host")
    port: int = setting(8000, "the port; 0: any free one", low=0, high=65535, option="--port")
    api_key: str | None = None  # what clients have to send as `Authorization: Bearer KEY`; None: no key is needed
    allowed_hosts: tuple[str, ...] = ()  # that requests may have in their Host header besides localhost and addresses
    runs: Path | None = None  # the folder whose runs `/weft/runs` lists; None: there is no such list
    sessions: Path | None = None  # the folder that sessions are saved in; None: sessions cannot be saved
    reload: bool = setting(False, "load a run again when its weights change", option="--reload")
    log_requests: bool = setting(False, "log method, route and status of every request", option="--log-requests")
    batch_size: int = setting(64, "the most texts that are predicted together", low=1, option="--batch-size")
    max_queue: int = setting(256, "how many requests of a model may wait", low=1, option="--max-queue")
    max_body: int = setting(1 << 20, "the largest body of a request, in bytes", low=1, option="--max-body")
    max_tokens: int = setting(4096, "the most tokens that a request may generate", low=1, option="--max-tokens")
    max_requests: int = 1000  # that are answered at the same time
    max_sessions: int = setting(
        100, "how many sessions are kept; the least recently used one is dropped", low=1, option="--max-sessions"
    )
    session_idle: float = setting(3600.0, "seconds after which an unused session ends", low=0, option="--session-idle")
    session_tokens: int = 100_000  # the most tokens of a session
    timeout: float = setting(60.0, "seconds that a request may take", low=0.1, option="--timeout")
    read_timeout: float = 10.0  # seconds that a client may take to send a request

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
