"""Objects of S3: AWS, other services, or versitygw on the loopback."""
