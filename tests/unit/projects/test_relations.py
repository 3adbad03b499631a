from __future__ import annotations

import pytest

from chalicelib.kernel.errors import InvalidDeclaration
from chalicelib.projects.relations import Namespace, canonical_relation, naming_rule

HOME = Namespace(database="Coffee", schema="main")


@pytest.mark.parametrize(
    ("adapter", "text", "canonical"),
    [
        ("duckdb", '"Coffee"."Main"."Orders"', "coffee.main.orders"),
        ("duckdb", "main.orders", "coffee.main.orders"),
        ("duckdb", "Orders", "coffee.main.orders"),
        ("postgres", 'shop.public."Orders"', "shop.public.Orders"),
        ("snowflake", "shop.public.orders", "SHOP.PUBLIC.ORDERS"),
        ("snowflake", 'shop.public."orders"', "SHOP.PUBLIC.orders"),
        ("bigquery", "`my-project`.`Data`.`Orders`", "my-project.Data.Orders"),
        ("sqlserver", "[Shop].[dbo].[Orders]", "shop.dbo.orders"),
        (None, "A.B.C", "a.b.c"),
        ("duckdb", '"a.b".c.d', '"a.b".c.d'),
        ("duckdb", '"say ""hi""".c.d', 'say "hi".c.d'),
    ],
)
def test_one_relation_has_one_text(adapter: str | None, text: str, canonical: str) -> None:
    assert canonical_relation(text, naming_rule(adapter), HOME) == canonical


def test_a_name_alone_stays_alone_where_the_schema_is_unknown() -> None:
    assert canonical_relation("orders", naming_rule("duckdb"), Namespace(database="coffee")) == "orders"
    assert canonical_relation("main.orders", naming_rule("duckdb"), Namespace(schema="other")) == "main.orders"
    assert canonical_relation("orders", naming_rule("duckdb"), Namespace(schema="main")) == "main.orders"


@pytest.mark.parametrize("text", ["", ".", "a.", "a..b", 'a"b', "a.b.c.d", " "])
def test_what_is_no_relation_is_refused(text: str) -> None:
    with pytest.raises(InvalidDeclaration, match=r"writes: .*database\.schema\.name"):
        canonical_relation(text, naming_rule("duckdb"), HOME)
