"""Forecasts of numeric series: a linear map, baselines, a recurrent network, and their combination."""
