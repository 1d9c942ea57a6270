"""The history server: runs of a folder in the browser, read only, on loopback."""
