"""How this Python was built."""

from __future__ import annotations

import sysconfig


def is_optimised() -> bool:
    """Whether its compiler was guided by a profile. An interpreter without takes about 6 % longer for the same mail."""
    flags = " ".join(str(sysconfig.get_config_var(name)) for name in ("CONFIG_ARGS", "PY_CFLAGS_NODIST", "PY_CORE_CFLAGS"))
    return "--enable-optimizations" in flags or "-fprofile-use" in flags or "-fprofile-instr-use" in flags
