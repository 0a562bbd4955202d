"""``python -m tpubench`` is the same as the console script."""

from tpubench.cli import main

if __name__ == "__main__":
    main()
