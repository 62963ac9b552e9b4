"""`python -m isthmus` is the same as the `isthmus` command."""

from isthmus.cli.app import main

if __name__ == "__main__":
    main()
