"""Replay of a log that was repaired: records whose causes are lost."""
