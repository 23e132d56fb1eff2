"""Forecasts of numeric series: a linear map, baselines, and their combination."""
