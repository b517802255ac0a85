"""What the demo's programs say: a line for people, or with `--events` a JSON object a line."""

import json
from datetime import datetime


class Voice:
    """Prints on stdout, one line at a time, at once."""

    def __init__(self, *, as_events: bool) -> None:
        self._as_events = as_events

    def say(self, event: str, text: str, **fields: str | int) -> None:
        """Tell people `text`, or programs the event with its fields."""
        if self._as_events:
            line = json.dumps({"event": event, "text": text, **fields})
        else:  # with what a message said in it: nothing that a terminal obeys
            shown = "".join(ch if ch.isprintable() else "�" for ch in text)
            line = f"{datetime.now():%H:%M:%S} {shown}"
        print(line, flush=True)

    def note(self, event: str, **fields: str | int) -> None:
        """Tell programs only."""
        if self._as_events:
            self.say(event, "", **fields)
