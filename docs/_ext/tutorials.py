"""Tutorials: Markdown that jupytext turns into notebooks, which are executed and become pages of the site."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "examples" / "tutorials"
DOWNLOAD = "\n\n---\n\nThis page is a notebook: {{download}}`{name}.ipynb`.\n"


def executed(source: Path):
    """Read a tutorial as a notebook and run it, with the interpreter that runs this."""
    import jupytext
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    notebook = jupytext.read(source)
    manager = AsyncKernelManager()
    manager._kernel_spec = KernelSpec(
        argv=[sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"], language="python"
    )
    # a kernel draws into its notebook, whatever the process that starts it draws into
    drawing = {**os.environ, "MPLBACKEND": "module://matplotlib_inline.backend_inline"}
    NotebookClient(notebook, timeout=240, km=manager).execute(env=drawing)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return notebook


def write(folder: Path) -> list[Path]:
    """Write every tutorial to a folder, as a notebook with its output and as a page."""
    import nbformat
    from nbconvert import MarkdownExporter

    folder.mkdir(parents=True, exist_ok=True)
    pages = []
    for source in sorted(SOURCES.glob("*.md")):
        page = folder / source.name
        if page.exists() and page.stat().st_mtime > source.stat().st_mtime:
            pages.append(page)
            continue
        notebook = executed(source)
        nbformat.write(notebook, folder / f"{source.stem}.ipynb")
        body, resources = MarkdownExporter().from_notebook_node(
            notebook, {"output_files_dir": "pictures", "unique_key": source.stem}
        )
        for name, content in resources["outputs"].items():
            picture = folder / name
            picture.parent.mkdir(exist_ok=True)
            picture.write_bytes(content)
        page.write_text(body + DOWNLOAD.format(name=source.stem))
        pages.append(page)
    return pages


def setup(app):
    """Run the tutorials before Sphinx looks for its pages."""
    app.connect("config-inited", lambda app, _: write(Path(app.srcdir) / "tutorials" / "generated"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
