"""Settings for all tests: one thread a process, because tests run side by side and their matrices are tiny.

No property is refused for the time that it takes, which depends on what else runs.
"""

import os

from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("weft", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("weft")
