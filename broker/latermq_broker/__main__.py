"""`python -m latermq_broker`: the `latermq` command."""

from latermq_cli.__main__ import main

if __name__ == "__main__":
    main()
