"""Retention for hours: `python tests/soak/retention.py --minutes 60`; exit code 1: a promise broke.

Segments of 1 MiB live three seconds, so an hour sees some thousands of them dropped: what a broker
with the default settings sees in years. What waits is rolled forward again and again; the broker is
killed and stopped every minute.
"""

import argparse
import resource
import sys
import tempfile
from pathlib import Path


def main(words: list[str]) -> int:
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `support`
    from support.broker_process import BrokerProcess
    from support.retention_story import CONFIG, Story

    parser = argparse.ArgumentParser(prog="retention.py", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="default: 60")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    options = parser.parse_args(words)
    story = Story(seed=options.seed, wait_ms_max=30_000)
    with tempfile.TemporaryDirectory(prefix="latermq-soak-") as directory:
        data = Path(directory) / "data"
        with BrokerProcess(data, config=CONFIG) as broker:
            seen = story.run(broker, options.minutes * 60, restarts=int(options.minutes))
            broker.terminate()
        segments = sorted((data / "log").glob("*.seg"))
    story.check()
    low = int(segments[0].stem) >> 20
    assert len(segments) < 60, f"{len(segments)} segments are left"
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    print(
        f"{len(story.expected):,} messages waited and came, {low:,} MiB were dropped before the "
        f"oldest of {len(segments)} segments; in the last life {seen.retention.messages_moved:,} "
        f"messages were rolled forward; the largest broker took {largest} MiB"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
