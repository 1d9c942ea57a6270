"""Runs as instances in WfCommons' WfFormat."""
