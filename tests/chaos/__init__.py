"""Workflows of a known answer under faults: is the record right, and the workflow unharmed?"""
