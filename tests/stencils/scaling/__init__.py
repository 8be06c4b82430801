"""Predictions for stencils on several devices."""
