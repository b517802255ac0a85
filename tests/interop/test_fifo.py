"""FIFO with the official Python client."""

from interop.client_cases import broker as broker
from interop.fifo_cases import FifoCases
from interop.fifo_cases import fifo as fifo


class TestPythonFifo(FifoCases):
    """Its producer, its simple and its push consumer."""
