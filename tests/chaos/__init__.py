"""Faults injected into workflows with a known result: record and workflow must stay correct."""
