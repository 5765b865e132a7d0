"""Objects of S3: AWS, other services, or versitygw on the loopback."""

# The variable that has the URL of an S3 service other than AWS.
ENDPOINT = "AWS_ENDPOINT_URL"
