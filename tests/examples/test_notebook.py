"""The example notebooks run from top to bottom, and their results are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("coffea", reason="coffea is not installed: pip install 'dask-strata[coffea]'")
pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient ipykernel")

import imageio.v3 as iio
import nbformat
import numpy as np
from nbclient import NotebookClient
from scipy import ndimage

from dask_strata.examples.image_processing import LUMINANCE, THRESHOLD, make_images

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "chunk_tracking.ipynb"
IMAGES = ROOT / "examples" / "image_processing.ipynb"
FIXTURES = ROOT.parent / "shared" / "fixtures"
REAL = FIXTURES / "coffea" / "nanoAOD_2015_CMS_Open_Data_ttbar.root"

#: Four files of 5,000 events, in chunks of at most 1,700; the real file is one chunk of 200.
CHUNKS, EVENTS = 12, 20_000

#: Prints the values in the notebook's frames as JSON.
LOOK = """
import json
print(json.dumps({
    "workers_now": workers_now.status.tolist(),
    "states_live": sorted(states_live.columns),
    "most_live": int(states_live.sum(axis=1).max()),
    "left_live": sum(task.prefix == "Muons" for task in after.tasks),
    "states_recorded": {r["prefix"]: r["tasks"] for r in states_recorded.to_dict("records")},
    "processor_live": sorted(set(processor_live.prefix)),
    "processor_keys": sorted(processor_tasks.key),
    "chunk_keys": sorted(chunks.key),
    "datasets": chunks.groupby("dataset", observed=True).size().to_dict(),
    "by_worker": int(by_worker.attempts.sum()),
    "summary_events": int(summary.events.sum()),
    "summary_unknown": summary.isna().sum().sum().item(),
    "per_worker_chunks": int(per_worker.chunks.sum()),
    "per_worker_bytes": int(per_worker.read_bytes.sum()),
    "reported_bytes": report["bytesread"],
    "n_workers": len(per_worker),
}))
"""


@pytest.mark.parametrize("fixtures", [FIXTURES, Path("no such folder")])
def test_the_notebook_runs_and_its_frames_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fixtures: Path
) -> None:
    """Run headless, with the real file and without, it reconciles with coffea's own report."""
    real = fixtures == FIXTURES and REAL.exists()
    n_chunks = CHUNKS + real
    monkeypatch.setenv("STRATA_FIXTURES", str(fixtures))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(LOOK))

    NotebookClient(
        notebook, timeout=180, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()

    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    printed = "".join(text_of(cell) for cell in cells)
    assert "reconciliation: equal" in printed
    assert "NOT equal" not in printed
    assert "record: whole" in printed
    assert ("With the real file" in printed) == real
    assert ("The real file is not present" in printed) != real

    seen = json.loads(text_of(cells[-1]))
    assert seen["workers_now"] == ["running", "running"]
    assert {"memory", "processing"} <= set(seen["states_live"])
    assert 0 < seen["most_live"] <= 2 * n_chunks
    assert seen["left_live"] == 0
    assert seen["processor_live"] == ["Muons"]
    assert seen["states_recorded"]["Muons"] == n_chunks
    assert seen["states_recorded"]["automatic_retries"] == 4 + real
    assert len(seen["chunk_keys"]) == n_chunks
    assert seen["chunk_keys"] == seen["processor_keys"]
    datasets = {"background": CHUNKS // 2, "signal": CHUNKS // 2}
    assert seen["datasets"] == (datasets | {"ttbar": 1} if real else datasets)
    assert seen["by_worker"] == sum(seen["states_recorded"].values())
    assert seen["summary_events"] == EVENTS + 200 * real
    assert seen["summary_unknown"] == 0
    assert seen["per_worker_chunks"] == n_chunks
    assert seen["per_worker_bytes"] == seen["reported_bytes"]
    assert 1 <= seen["n_workers"] <= 2


@pytest.mark.release
def test_the_notebook_of_images_runs_and_adds_up(tmp_path: Path) -> None:
    """Its counts agree with the files that its pipeline read and wrote, and with SciPy's."""
    notebook = nbformat.read(IMAGES, as_version=4)
    look = "print(n_objects, len(reads), by_prefix.tasks.sum(), int(by_worker.attempts.sum()))"
    notebook.cells.append(nbformat.v4.new_code_cell(look))
    NotebookClient(
        notebook, timeout=180, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in cells)
    printed = "".join(text_of(cell) for cell in cells)
    assert "NOT" not in printed
    for line in ("objects: equal", "files: equal", "record: whole"):
        assert line in printed
    objects, read, tasks, attempts = map(int, text_of(cells[-1]).split())
    assert read == 16
    assert tasks == attempts
    assert objects == found_without_dask(tmp_path / "images", 16, 256)


def found_without_dask(folder: Path, images: int, size: int) -> int:
    """Return the number of objects in the notebook's images, by NumPy and SciPy alone."""
    make_images(folder, images, size)
    stack = np.stack([iio.imread(path) for path in sorted(folder.iterdir())]).astype("float32")
    gray = (stack - stack.min()) / (stack.max() - stack.min()) @ np.array(LUMINANCE, "float32")
    smooth = ndimage.gaussian_filter(gray, sigma=(0, 2, 2))
    return sum(ndimage.label(image)[1] for image in smooth > THRESHOLD)


@pytest.mark.parametrize("path", [NOTEBOOK, IMAGES], ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    """In the repository the notebook has no outputs, no counts and no local folders."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
    assert path.stat().st_size < 30_000
    assert "/tmp" not in path.read_text(encoding="utf-8")


def text_of(cell: Any) -> str:
    """Return the printed output of a cell."""
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")
