"""Run PTX on the CPU, with function, counts and clock as separate layers."""

from memlane.emulate.emulator import PATIENCE, Emulator

__all__ = ["PATIENCE", "Emulator"]
