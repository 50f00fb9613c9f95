"""The package is imported before its modules are collected one by one for their doctests.

Otherwise a module that its own package imports is executed twice, with classes that are not the package's.
"""

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

import onefit

for found in iter_modules(onefit.__path__):
    if found.ispkg and found.name not in ("cli", "torch"):  # of extras that may not be installed
        import_module(f"onefit.{found.name}")
import_module("onefit.api")

# What a module needs that may not be installed; one that cannot be imported for another reason is an error.
READERS = ("adelie", "celer", "glum", "skglm", "sortedl1", "statsmodels")
NEEDS = {
    "src/onefit/cli": "click",
    "src/onefit/torch": "torch",
    "src/onefit/dask.py": "distributed",
    "tests/blocks/two_workers.py": "distributed",
    "tests/cuda_agreement.py": "torch",
    "src/onefit/sources/table.py": "pyarrow",
} | {f"src/onefit/readers/{package}.py": package for package in READERS}
collect_ignore = [path for path, package in NEEDS.items() if find_spec(package) is None]
collect_ignore_glob = ["docs/*.py", "docs/_ext/*.py"]  # programs that build the site, run by `make docs`
