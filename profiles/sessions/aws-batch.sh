#!/bin/sh
# Measures sessions as an array of AWS Batch:
#   QUEUE=… IMAGE=… ROLE=arn:… profiles/sessions/aws-batch.sh config/ec2.yaml 6 s3://bucket/prefix
# IMAGE is one of Containerfile that contains the configuration. ROLE may list the bucket and put objects. A job that is
# attempted again begins anew.
set -eu
[ $# -eq 3 ] || {
    echo "usage: QUEUE=… IMAGE=… ROLE=… $0 CONFIG SESSIONS s3://bucket/prefix" >&2
    exit 2
}
# VCPUS and MEMORY (MiB): nearly all that an instance of the queue has, so that each session has an instance to itself.
aws batch register-job-definition --cli-input-json "$(
    cat <<END
{
  "jobDefinitionName": "storage-benchmarks",
  "type": "container",
  "platformCapabilities": ["EC2"],
  "retryStrategy": {"attempts": 3},
  "timeout": {"attemptDurationSeconds": 43200},
  "containerProperties": {
    "image": "$IMAGE",
    "jobRoleArn": "$ROLE",
    "resourceRequirements": [
      {"type": "VCPU", "value": "${VCPUS:-4}"},
      {"type": "MEMORY", "value": "${MEMORY:-15000}"}
    ],
    "command": ["sh", "-c", "exec ./sbench run $1 --session \$AWS_BATCH_JOB_ARRAY_INDEX --to $3 --yes"]
  }
}
END
)"
aws batch submit-job --job-name storage-benchmarks --job-queue "$QUEUE" \
    --job-definition storage-benchmarks --array-properties "size=$2"
