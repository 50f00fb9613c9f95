"""The package is imported before its modules are collected one by one for their doctests.

Otherwise a module that its own package imports is executed twice, with classes that are not the package's.
"""

from importlib import import_module
from pkgutil import iter_modules

import onefit

for found in iter_modules(onefit.__path__):
    if found.ispkg and found.name not in ("cli", "torch"):  # of extras that may not be installed
        import_module(f"onefit.{found.name}")
import_module("onefit.api")
