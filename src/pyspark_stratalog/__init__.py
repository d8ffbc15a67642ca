"""What makes `spark.read.format("stratalog")` work without a `register`: PySpark looks for top-level modules whose
name begins with `pyspark_`, and takes the class `DefaultSource` of each.  Nothing else is here."""

from stratalog.spark.source import StratalogDataSource as DefaultSource

__all__ = ["DefaultSource"]
