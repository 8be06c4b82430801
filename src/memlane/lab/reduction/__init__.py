"""The reduction ladder."""
