"""From rows to bytes: the engine and its threads, encoding, redaction, errors."""
