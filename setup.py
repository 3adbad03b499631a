from setuptools import find_packages, setup

packages = ["tidemill", *(f"tidemill.{name}" for name in find_packages("chalicelib"))]
setup(packages=packages, package_dir={"tidemill": "chalicelib"}, package_data={"": ["*.sql", "py.typed"]})
