"""The Chalice application: every path with every method, and the event handlers for the packager to find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chalice.app import Chalice, Request

from .. import wiring
from ..events import blueprints
from ..wiring import Wire
from .routing import METHODS, Operation, view_of
from .table import operations


def build_app(wire: Wire = wiring.services) -> Chalice:
    """The application. ``wire`` gives the services and is asked at each request, so it must remember them."""
    app = Chalice(app_name="tidemill", configure_logs=False)
    add_routes(app, operations(), wire)
    for blueprint in blueprints():
        app.register_blueprint(blueprint)
    return app


def add_routes(app: Chalice, rows: Sequence[Operation], wire: Wire) -> None:
    """Register every method of each path, so that one which is not offered is answered here, not by the gateway."""

    def current() -> Request:
        # asked at each request: a local server gives each thread a request of its own
        if app.current_request is None:
            raise LookupError("no request is being answered")
        return app.current_request

    for path, by_method in _by_path(rows).items():
        # content types are checked by the view, whose refusal is a problem document
        app.route(path, methods=list(METHODS), content_types=[], name=path)(view_of(by_method, wire, current))


def _by_path(rows: Sequence[Operation]) -> Mapping[str, Mapping[str, Operation]]:
    paths: dict[str, dict[str, Operation]] = {}
    for row in rows:
        if row.method in paths.setdefault(row.path, {}):
            raise TypeError(f"{row.method} {row.path} is declared twice")
        paths[row.path][row.method] = row
    return paths
