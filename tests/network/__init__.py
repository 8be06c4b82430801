"""Networks as data files."""
