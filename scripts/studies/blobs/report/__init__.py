"""What the report of the study `blobs` shows and says."""
