"""What a wheel contains; everything else is in pyproject.toml.

In this repository, `workers`, `connectors` and `migrations` are top-level packages beside `archiver`. A wheel has them below
`archiver/bundled`, so that nothing but `archiver` appears in site-packages, and archiver/__init__.py finds them there
(docs/decisions/0012-one-name-in-site-packages.md). An editable installation uses them where they are.
"""

import sys

from setuptools import find_packages, setup

BUNDLED = ("workers", "connectors", "migrations")

packages = find_packages(include=["archiver*", *(f"{name}*" for name in BUNDLED)])
folders = {}
if "editable_wheel" not in sys.argv:
    packages = [name if name.partition(".")[0] not in BUNDLED else f"archiver.bundled.{name}" for name in packages]
    folders = {f"archiver.bundled.{name}": name for name in BUNDLED}
setup(packages=packages, package_dir=folders)
