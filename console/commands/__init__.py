"""The command line's commands, one family a module: each adds its parsers and runs them."""
