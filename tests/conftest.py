"""For every suite."""

import signal

# A shell starts background jobs with SIGINT ignored, and what they start inherits it. Tests press
# Ctrl-C on processes of theirs; from here on those get it.
signal.signal(signal.SIGINT, signal.default_int_handler)
