"""Where a bucket is, as readers are told; nothing here imports an SDK, which takes longer than many a cell."""

# The variable that has the URL of an S3 service other than AWS.
ENDPOINT = "AWS_ENDPOINT_URL"


def bucket_url(store: dict, endpoint: str | None) -> str:
    """Return the URL of a bucket: path style at an endpoint, virtual-hosted style at AWS."""
    if endpoint:
        return f"{endpoint}/{store['bucket']}"
    return f"https://{store['bucket']}.s3.{store['region']}.amazonaws.com"
