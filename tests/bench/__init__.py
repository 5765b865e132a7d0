"""What the project itself costs, each module a benchmark, beside what it is compared with in the same run."""
