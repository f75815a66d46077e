"""Read only: what screens, exports and agents ask of the ledger."""
