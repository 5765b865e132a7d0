"""The volumes study: measure the fdatasync latency of block volumes under load with fio."""
