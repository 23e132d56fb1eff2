"""Settings for all tests: one thread a process, because tests run side by side and their matrices are tiny."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
