"""Series of numbers over time: frequencies, readers, calendars and the field of series. No torch.

Shapes: T steps, C channels of the target, F steps beyond it for which covariates are known, K of these, P past ones.
"""

from weft.series.calendar import calendar_cycles, calendar_features, calendar_names, calendar_positions
from weft.series.field import ScaledSeries, Series
from weft.series.frequency import COUNTER, Frequency, infer_frequency
from weft.series.reader import read_columns, read_series
from weft.series.time_series import SeriesColumns, SeriesSet, TimeSeries
from weft.series.times import TimeFormat
