"""Capline console."""
