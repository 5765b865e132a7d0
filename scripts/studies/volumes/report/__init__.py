"""What the report of the study `volumes` shows and says."""
