"""fdatasync latency of block volumes under load, by fio."""
