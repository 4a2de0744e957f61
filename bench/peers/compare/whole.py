"""Files that are there whole or not at all: the package's own writer, taken from the checkout, because no package need be built here."""

import importlib.util

from . import linked

_spec = importlib.util.spec_from_file_location("polyhead_files", linked.ROOT / "python" / "polyhead" / "_files.py")
_files = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_files)
write = _files.write
