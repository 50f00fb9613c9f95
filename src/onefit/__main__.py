"""The command ``onefit``, and ``python -m onefit``."""

from __future__ import annotations

import sys

EXTRA = ("click", "pandas", "pyarrow", "jinja2", "skops", "matplotlib")  # what onefit[cli] brings


def main() -> None:
    """Run the command line; exit 2 for what the user can mend, 130 after Ctrl-C."""
    try:
        from onefit.cli.app import run
    except KeyboardInterrupt:
        sys.stderr.write("onefit: interrupted\n")
        sys.exit(130)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA:
            raise
        sys.stderr.write(
            f"onefit: error: the command line needs {error.name}: install onefit[cli], "
            'for example with pip install "onefit[cli]"\n'
        )
        sys.exit(2)
    sys.exit(run())


if __name__ == "__main__":
    main()
