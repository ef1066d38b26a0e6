"""Capline gateway."""
