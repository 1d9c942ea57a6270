"""Find and label the bright objects in a folder of images, with Dask.

The image-processing pipeline of the Dask examples: read, normalise, grayscale, Gaussian
filter, threshold, label, and save the labels. The script first makes the images, the same ones
in each run. It runs on a cluster of its own, on an existing cluster, or under an MPI launcher.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

#: Modules that the pipeline imports, besides Dask.
NEEDS = ("numpy", "scipy.ndimage", "dask.array", "dask_image.imread", "imageio.v3", "PIL")

#: Kinds of cluster.
MODES = ("LocalCluster", "MPI", "distributed")

#: Shares of red, green and blue in the brightness of a pixel.
LUMINANCE = (0.299, 0.587, 0.114)

#: Brightness from which a pixel belongs to an object: 0 is the darkest pixel, 1 the brightest.
THRESHOLD = 0.35


def make_image(number: int, size: int) -> Any:
    """Return the RGB image with a number: bright blobs on noise, the same for each call."""
    import numpy as np
    from scipy import ndimage

    random = np.random.default_rng(number)
    spots = np.zeros((size, size))
    centers = random.integers(0, size, (2, 20 + number % 11))
    spots[tuple(centers)] = 1.0
    width = max(1.0, size / 85)
    blobs = np.clip(ndimage.gaussian_filter(spots, width) * 2 * np.pi * width**2, 0, 1)
    tint = random.uniform(0.6, 1.0, 3)
    noise = random.normal(0.12, 0.05, (size, size, 3))
    return (np.clip(0.85 * blobs[..., None] * tint + noise, 0, 1) * 255).astype(np.uint8)


def make_images(folder: Path, images: int, size: int) -> None:
    """Write the images as PNG files; replace those of an earlier run."""
    import imageio.v3 as iio

    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("image-*.png"):
        old.unlink()
    for number in range(images):
        iio.imwrite(folder / f"image-{number:04d}.png", make_image(number, size))


def find_objects(files: Path) -> Any:
    """Return the labels of the objects in each image of a folder, as a lazy array."""
    import dask.array as da
    import numpy as np
    from dask_image import imread, ndfilters

    names = sorted(files.glob("image-*.png"))
    pattern = names[0] if len(names) == 1 else files / "image-*.png"
    stack = imread.imread(str(pattern)).astype("float32")
    darkest, brightest = stack.min(), stack.max()
    normalised = (stack - darkest) / (brightest - darkest)
    gray = da.tensordot(normalised, np.array(LUMINANCE, "float32"), axes=1)
    smooth = ndfilters.gaussian_filter(gray, sigma=(0, 2, 2))
    return (smooth > THRESHOLD).map_blocks(label_image, dtype="uint16")


def label_image(bright: Any) -> Any:
    """Return for each pixel of one image the number of its object; 0 for none."""
    from scipy import ndimage

    labels, _ = ndimage.label(bright[0])
    return labels[None].astype("uint16")


def save_labels(labels: Any, path: Path) -> int:
    """Write the labels of one image as a 16-bit PNG file; return the number of objects."""
    import imageio.v3 as iio

    iio.imwrite(path, labels[0])
    return int(labels.max())


def process(images: Path, results: Path) -> int:
    """Run the pipeline on the current client's cluster; return the number of objects."""
    import dask

    results.mkdir(parents=True, exist_ok=True)
    for old in results.glob("labels-*.png"):
        old.unlink()
    save = dask.delayed(save_labels, pure=False)
    found = [
        save(block, results / f"labels-{number:04d}.png")
        for number, block in enumerate(find_objects(images).to_delayed().ravel())
    ]
    return sum(dask.compute(*found))


def missing(options: argparse.Namespace) -> tuple[str, str] | None:
    """Return the first missing package and the extra that installs it; None if none is missing."""
    needs = dict.fromkeys(NEEDS, "demo")
    if options.mode == "MPI":
        needs |= {"dask_mpi": "mpi", "mpi4py": "mpi"}
    if options.yappi is not None:
        needs["yappi"] = "yappi"
    try:
        for name in needs:
            importlib.import_module(name)
    except ImportError as error:
        return (error.name or name).partition(".")[0], needs[name]
    return None


def mode(text: str) -> str:
    """Return the mode in its usual spelling; case does not matter."""
    try:
        return next(m for m in MODES if m.lower() == text.lower())
    except StopIteration:
        raise argparse.ArgumentTypeError(f"must be {' or '.join(MODES)}, not {text}") from None


def positive(text: str) -> int:
    """Return the whole number in a text; it must be at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


class _Parser(argparse.ArgumentParser):
    """Prints an error in one line."""

    def error(self, message: str) -> Any:
        """Print the message and exit with status 2."""
        self.exit(2, f"Error: {message}. See: python -m {__spec__.name} --help\n")


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    name = f"python -m {__spec__.name}"
    parser = _Parser(
        prog=name,
        description=__doc__.partition("\n\n")[0],
        epilog=f"Example: {name} --images 48 --folder /tmp/images",
    )
    add = parser.add_argument
    add("--images", type=positive, default=24, help="number of images (default: %(default)s)")
    add("--size", type=positive, default=512, help="width in pixels (default: %(default)s)")
    add("--workers", type=positive, default=2, help="worker processes (default: %(default)s)")
    add("--threads", type=positive, default=2, help="threads per worker (default: %(default)s)")
    add("--folder", type=Path, help="folder for the images (default: a new temporary folder)")
    add("--mode", type=mode, default="LocalCluster", help="LocalCluster, MPI or distributed")
    add("--scheduler-file", type=Path, help="file of the scheduler; required by mode distributed")
    add("--yappi", choices=("wall", "cpu"), help="profile the workers by this clock")
    add("--report-dir", type=Path, help="folder for task stream, performance report, configuration")
    options = parser.parse_args(argv)
    if options.mode == "distributed" and options.scheduler_file is None:
        parser.error("argument --mode: distributed needs --scheduler-file")
    if options.size < 64:  # noqa: PLR2004  smaller images have no room for the blobs
        parser.error(f"argument --size: must be at least 64, not {options.size}")
    return options


@contextmanager
def connected(options: argparse.Namespace) -> Iterator[Any]:
    """Yield a client of the cluster.

    Under MPI only one process returns from here: the others are the cluster. The option
    ``--yappi`` applies to processes that start after this call.
    """
    import dask
    from distributed import Client, LocalCluster

    if options.yappi is not None:
        dask.config.set({"dask_strata.yappi.clock": options.yappi})
    with ExitStack() as stack:
        if options.mode == "distributed":
            client = Client(scheduler_file=str(options.scheduler_file))
        elif options.mode == "MPI":
            from dask_mpi import initialize

            initialize(nthreads=options.threads, dashboard=False)
            client = Client()
        else:
            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=options.workers,
                    threads_per_worker=options.threads,
                    processes=True,
                    dashboard_address=":0",
                )
            )
            client = Client(cluster)
        yield stack.enter_context(client)


@contextmanager
def profiled(client: Any, options: argparse.Namespace, folder: Path) -> Iterator[None]:
    """Profile the block if ``--yappi`` is given, unless the cluster is being profiled already."""
    announced = client.get_metadata(["dask-strata"], default=None) or {}
    clocks = {spec["settings"].get("yappi.clock") for spec in announced.values()}
    if options.yappi is None or clocks - {None}:
        yield
        return
    import dask_strata

    with dask_strata.record(folder / "runs", client=client, yappi=options.yappi) as run:
        yield
    print(f"The profile is in {run.path}")


@contextmanager
def reported(client: Any, folder: Path | None) -> Iterator[None]:
    """Write Dask's own reports: task stream, performance report and configuration."""
    if folder is None:
        yield
        return
    import dask
    import yaml  # type: ignore[import-untyped, unused-ignore]
    from distributed import get_task_stream

    folder.mkdir(parents=True, exist_ok=True)
    config = yaml.safe_dump(dask.config.config)
    (folder / "dask-config.yaml").write_text(config, encoding="utf-8")
    with ExitStack() as stack:
        if importlib.util.find_spec("bokeh") is None:
            print("No performance report: pip install 'dask-strata[demo]'", file=sys.stderr)
        else:
            stack.enter_context(_dask_report(folder / "performance-report.html"))
        stream = stack.enter_context(get_task_stream(client))
        yield
    text = json.dumps(stream.data, default=str, indent=1)
    (folder / "task-stream.json").write_text(text + "\n", encoding="utf-8")
    print(f"Reports are in {folder}")


@contextmanager
def _dask_report(page: Path) -> Iterator[None]:
    """Let Dask write its performance report; report an incompatible version of bokeh."""
    from distributed import performance_report

    report = performance_report(filename=str(page))
    report.__enter__()
    try:
        yield
    finally:
        try:
            report.__exit__(None, None, None)
        except Exception as error:  # noqa: BLE001  the results do not depend on the report
            print(f"No performance report: {type(error).__name__}: {error}", file=sys.stderr)


def run(options: argparse.Namespace) -> None:
    """Make the images, process them on the cluster, and print the result."""
    with connected(options) as client:
        chosen = options.folder or Path(tempfile.mkdtemp(prefix="image-processing-"))
        folder = chosen.resolve()
        images, results = folder / "images", folder / "labels"
        make_images(images, options.images, options.size)
        print(f"{options.images} images of {options.size} x {options.size} pixels made in {images}")
        with (
            profiled(client, options, options.report_dir or folder),
            reported(client, options.report_dir),
        ):
            objects = process(images, results)
        print(f"{objects} objects found and labelled")
    print(f"Results are in {results}")


def main(argv: list[str] | None = None) -> int:
    """Run the example; return the exit status."""
    options = parse(argv)
    found = missing(options)
    if found is not None:
        package, extra = found
        print(f"Error: {package} is missing: pip install 'dask-strata[{extra}]'", file=sys.stderr)
        return 1
    try:
        run(options)
    except OSError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
