"""The official Python client's transactions and recall against a broker process."""

from interop.client_cases import broker as broker
from interop.transaction_cases import TransactionCases
from interop.transaction_cases import tx as tx
from interop.transaction_cases import verdicts as verdicts


class TestTransactions(TransactionCases):
    pass
