"""What Chalice imports: the application of ``chalicelib/entrypoints/api``."""

from chalicelib.entrypoints.api import build_app

app = build_app()
