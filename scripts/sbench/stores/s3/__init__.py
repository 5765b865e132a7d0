"""Read and write objects of S3: AWS, other services, or versitygw on the loopback."""

# Environment variables with the URL of an S3 service other than AWS, and the keys of an account.
ENDPOINT = "AWS_ENDPOINT_URL"
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
