"""What the report of the study `shots` shows and says."""
