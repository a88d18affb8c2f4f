"""The package as its users get it: built, installed into an empty environment, where the README's start runs."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
# What the README's start calls, and what ends its loop.
AROUND = """
written = []

def next_step():
    return len(written)

def write(step, token):
    written.append(token)
    if len(written) == 3:
        lease.release()

{start}
assert len(set(written)) == 1 and len(written) == 3, written
import tenure_client
assert "site-packages" in tenure_client.__file__, tenure_client.__file__
"""


def run(*command, **options):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


class Package(unittest.TestCase):
    def setUp(self):
        self.place = Path(tempfile.mkdtemp(prefix="tenure-py-"))
        self.addCleanup(shutil.rmtree, self.place)

    def build(self):
        """The wheel, made from the source distribution. Building writes into its folder."""
        source = self.place / "source"
        unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", ".*_cache")
        shutil.copytree(PACKAGE, source, ignore=unwanted)
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(self.place), str(source))
        (wheel,) = self.place.glob("*.whl")
        self.assertEqual(len(list(self.place.glob("*.tar.gz"))), 1)
        return wheel

    def install(self, wheel):
        run(sys.executable, "-m", "venv", "--without-pip", str(self.place / "empty"))
        python = self.place / "empty" / "bin" / "python"
        run(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--quiet", str(wheel))
        return python

    def daemon(self):
        binary = os.environ.get("TENURE_BIN")
        if not binary:
            self.skipTest("TENURE_BIN does not name a daemon")
        data = self.place / "data"
        data.mkdir()
        arguments = ["serve", "--store", f"sqlite:{data}/t.db", "--data-dir", str(data), "--listen", "127.0.0.1:0"]
        daemon = subprocess.Popen([binary, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(daemon.stdout.close)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        url = daemon.stdout.readline().strip()
        run(binary, "settle", "--store", url, "--yes")
        return url

    def test_start_of_the_readme_runs_from_the_installed_package(self):
        url = self.daemon()
        python = self.install(self.build())
        start = re.search(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)[1]
        self.assertLessEqual(len(start.splitlines()), 6)
        script = self.place / "start.py"
        script.write_text(AROUND.format(start=start.replace("http://127.0.0.1:7717", url)))
        run(str(python), "-I", str(script), cwd=str(self.place))


if __name__ == "__main__":
    unittest.main()
