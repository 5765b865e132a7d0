"""Programs of the workflow, one a step; started from the root as `python -sE -m scripts.<program>`."""
