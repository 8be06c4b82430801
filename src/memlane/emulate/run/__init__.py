"""One launch, and what it needs: memory, initial values, faults, the host's services, interruption, schedules."""
