"""The lake's schema: every table with its columns, declared once, readable without pyarrow."""

from dissector.schemas.column import TYPES, Column, Table
from dissector.schemas.tables import OF_REPORTS, SCHEMA_VERSION, SINCE, TABLES

__all__ = ["OF_REPORTS", "SCHEMA_VERSION", "SINCE", "TABLES", "TYPES", "Column", "Table"]
