"""From records to tables and verdicts, whatever the study."""
