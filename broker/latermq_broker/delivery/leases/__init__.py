"""Deliveries and their leases: a slab of columns, deadlines, handles."""
