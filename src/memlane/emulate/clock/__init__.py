"""The clock layer: who issues when, how long results take, and the caches behind an access."""
