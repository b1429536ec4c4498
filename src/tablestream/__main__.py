"""``python -m tablestream`` is the command line."""

from tablestream.cli import main

if __name__ == "__main__":
    main()
