"""Runs as provenance: W3C PROV documents, and Provenance Run Crates."""
