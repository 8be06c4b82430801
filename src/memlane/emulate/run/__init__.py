"""Run one launch: memory, initial values, faults, host services, interruption and schedules."""
