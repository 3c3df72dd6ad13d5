"""The demo: real processes around one database, started and ended together."""
