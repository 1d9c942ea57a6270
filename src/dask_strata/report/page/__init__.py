"""The page of a run: one self-contained HTML file."""

from dask_strata.report.page.page import make_page, story_html, write_page

__all__ = ["make_page", "story_html", "write_page"]
