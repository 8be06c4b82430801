"""Provide memlane's pytest plugin, which checks every launch on the emulator in users' tests.

pytest finds it by its entry point. It imports nothing before a launch is made.
"""
