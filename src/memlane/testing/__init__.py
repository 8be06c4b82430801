"""memlane in other people's tests: a plugin for pytest that checks every launch on the emulator.

pytest finds it by its entry point. It imports nothing before a launch is made.
"""
