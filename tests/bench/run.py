"""`make bench`: all cases of the suite, a table on standard output and in docs/benchmarks.md."""

import sys
from pathlib import Path


def main() -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `bench` and `support`
    from bench.suite import main as run_suite

    return run_suite(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
