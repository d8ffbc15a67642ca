"""The process from which Spark forks its Python workers, with the kernels loaded before the first fork.

Spark starts it as `python -m stratalog.spark.daemon` when `spark.python.daemon.module` names it, which `session` does:
a worker then begins with Numba and the kernels in its memory, instead of half a second later.  No thread is started
before the fork.
"""

from __future__ import annotations


def main() -> None:
    import pyarrow  # noqa: F401  what every worker imports first
    from pyspark import daemon

    from stratalog.records.kernels import load_kernels

    load_kernels()
    daemon.manager()


if __name__ == "__main__":
    main()
