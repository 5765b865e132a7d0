"""Support S3: AWS, other S3-compatible services, and an embedded versitygw."""

# Environment variables for the URL of an S3 service other than AWS, and for the keys of an account.
ENDPOINT = "AWS_ENDPOINT_URL"
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
