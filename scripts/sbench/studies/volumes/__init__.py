"""Measure fdatasync latency of block volumes under load with fio."""
