"""Reading bundles: zip files with a whole run and its page, made by anyone."""
