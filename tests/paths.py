"""Where tests find the repository, and the real data sets: in $WEFT_DATA, else in shared/data beside the repository."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REAL_DATA = Path(os.environ.get("WEFT_DATA") or ROOT.parent / "shared" / "data")
