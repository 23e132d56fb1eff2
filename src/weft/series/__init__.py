"""Series of numbers over time: frequencies, readers, calendars and the field of series. No torch.

Shapes: T steps, C channels of the target, F steps beyond it for which covariates are known, K of these, P past ones.
"""

from weft.series.frequency import COUNTER, Frequency, infer_frequency
from weft.series.time_series import SeriesSet, TimeSeries

__all__ = ["COUNTER", "Frequency", "SeriesSet", "TimeSeries", "infer_frequency"]
