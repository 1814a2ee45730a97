"""Makes the format `geomq` known to Spark, which looks for packages called `pyspark_...`."""

from geomq.pipeline.streaming.format import GeomqFormat as DefaultSource

__all__ = ["DefaultSource"]
