"""Writes a folder as a wheel: `wheel.py FOLDER FILE EPOCH`. The same folder gives the same bytes."""

import base64
import hashlib
import os
import sys
import time
import zipfile

folder, file, epoch = sys.argv[1:]
when = time.gmtime(int(epoch))[:6]
paths = [os.path.join(base, name) for base, _, names in os.walk(folder) for name in names]
names = {os.path.relpath(path, folder).replace(os.sep, "/"): path for path in paths}
# The folder about the wheel comes last, as the format recommends.
order = sorted(names, key=lambda name: (".dist-info/" in name, name))
record = next(name for name in order if name.endswith(".dist-info/WHEEL")).replace("WHEEL", "RECORD")
rows = []

with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as wheel:

    def add(name, data, mode):
        entry = zipfile.ZipInfo(name, when)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.create_system = 3
        entry.external_attr = (0o100000 | mode) << 16
        wheel.writestr(entry, data)

    for name in order:
        with open(names[name], "rb") as source:
            data = source.read()
        add(name, data, os.stat(names[name]).st_mode & 0o777)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(data)}")
    rows.append(f"{record},,")
    add(record, "\n".join(rows) + "\n", 0o644)
