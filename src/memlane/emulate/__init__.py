"""Runs PTX on the CPU: function, counts and clock as separate layers."""

from memlane.emulate.emulator import Emulator

__all__ = ["Emulator"]
