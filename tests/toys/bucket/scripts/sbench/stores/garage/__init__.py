"""Another kind of store that speaks S3."""
