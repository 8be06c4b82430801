"""The clock layer: models issue slots, pipes, latencies, caches and DRAM to time each warp instruction."""
