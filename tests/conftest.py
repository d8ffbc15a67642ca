"""What Java leaves behind goes: Kafka's tools and Spark get a temporary directory of this test run.

The process that begins the run makes it and removes it in the end; the workers of xdist inherit it.  And Ctrl-C reaches
what the tests start also where the run itself was started in the background, with interrupts ignored.
"""

import os
import shutil
import signal
import tempfile

_OWN = "STRATALOG_TESTS_JAVA_TMP"


def pytest_configure(config):
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # it would be inherited by every command that a test starts
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if _OWN in os.environ:
        return
    directory = os.environ[_OWN] = tempfile.mkdtemp(prefix="stratalog-tests-")
    config.add_cleanup(lambda: shutil.rmtree(directory, ignore_errors=True))
    option = f"-Djava.io.tmpdir={directory}"
    for name in ("KAFKA_OPTS", "SPARK_SUBMIT_OPTS"):
        os.environ[name] = f"{os.environ.get(name, '')} {option}".strip()
    os.environ.setdefault("SPARK_LOCAL_DIRS", directory)
