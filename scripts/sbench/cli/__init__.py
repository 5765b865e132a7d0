"""The `sbench` command line: a module per subcommand, which declares its options and calls the implementation."""
