"""What only the workflow imports: tables, statistics, figures."""
