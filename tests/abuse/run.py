"""Attack a broker, case by case, each a broker of its own, and tell what it cost.

    python -m abuse.run [--page] [--only WORDS] [--source TREE]

`--page` writes the figures into docs/security.md; those of another source tree are "before".
"""

import argparse
import asyncio
import os
import tempfile
import traceback
from pathlib import Path

from abuse import page
from abuse.attacks import CASES
from abuse.siege import CONFIG, SMALL, SOURCE_VARIABLE, Case, Figures, Siege


async def figures_of(cases: list[Case]) -> dict[str, Figures]:
    """Each case against a broker of its own."""
    found = {}
    for case in cases:
        with tempfile.TemporaryDirectory() as directory:
            siege = Siege(Path(directory) / "data", CONFIG + (SMALL if case.number == 13 else ""))
            try:
                await siege.start()
                found[case.name] = figures = await siege.endure(case)
            except Exception:  # noqa: BLE001  the next case may still tell something
                traceback.print_exc()
                continue
            finally:
                siege.stop()
        told = figures.faults(case) or ["holds"]
        print(f"{case.number:>2} {case.name}: {figures.line()}: {'; '.join(told)}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="cases whose name or number has this word")
    parser.add_argument("--source", default="", help="a source tree, whose broker is attacked")
    parser.add_argument("--page", action="store_true", help="write docs/security.md")
    options = parser.parse_args()
    if options.source:
        os.environ[SOURCE_VARIABLE] = options.source
    words = options.only.split(",") if options.only else []
    chosen = [
        case
        for case in CASES
        if not words
        or any(w == str(case.number) or (not w.isdigit() and w in case.name) for w in words)
    ]
    found = asyncio.run(figures_of(chosen))
    if options.page:
        page.write(CASES, found, before=bool(options.source))


if __name__ == "__main__":
    main()
