"""The tenure of the wrapper around this process: `tenure join` or `tenure lock`."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Wrapper:
    """`TENURE_ID` is the tenure at the start; `TENURE_FILE` names the current one: after a lapse it is another."""

    group: str
    tenure: str

    @property
    def member(self) -> str:
        return self.tenure.rpartition("@")[0]

    @staticmethod
    def find() -> Wrapper | None:
        group, tenure, file = (os.environ.get(name) for name in ("TENURE_GROUP", "TENURE_ID", "TENURE_FILE"))
        if not group or not tenure:
            return None
        first = Wrapper(group, tenure)
        if not file:
            return first
        try:
            with open(file, encoding="utf-8") as opened:
                content = json.load(opened)
                current = Wrapper(str(content["group"]), str(content["tenure"]))
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ValueError(f"TENURE_FILE {file} cannot be read: {error}") from error
        # In a wrapper within a wrapper it may be that of the outer one.
        return current if (current.group, current.member) == (first.group, first.member) else first
