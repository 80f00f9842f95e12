"""Compile functions over arrays by numba, which is imported only then."""

from __future__ import annotations

import contextlib
import functools
import os
import types
import zlib
from collections.abc import Callable
from typing import Any


@functools.cache
def compiled(function: Callable[..., Any], counted: bool = True, **constants: Any) -> Callable[..., Any]:
    """Return `function`, compiled with the functions that it calls by name.

    They see `constants` instead of globals of these names. The first call compiles. The code is kept in __pycache__,
    or in the user's cache if that cannot be written. Unless references are `counted`, which may take most of the
    time, only `function` may make or return arrays and lists.
    """
    import numba

    calls: dict[Any, dict[str, Any]] = {}
    left: list[Any] = [function]
    while left:
        each = left.pop()
        if each not in calls:
            found = {name: each.__globals__.get(name) for name in each.__code__.co_names}
            calls[each] = {name: value for name, value in found.items() if isinstance(value, types.FunctionType)}
            left += calls[each].values()
    # Numba checks only the file of `function`, not all that its cached code depends on.
    files = sorted({each.__code__.co_filename for each in calls})
    stamp = zlib.crc32(repr(([os.stat(path).st_mtime_ns for path in files], constants)).encode())
    jitted: dict[Any, Any] = {}
    for each in calls:
        copy = types.FunctionType(each.__code__, each.__globals__ | constants, each.__name__)
        copy.__module__, copy.__qualname__ = each.__module__, f"{each.__qualname__}-{stamp:x}"
        # Without wrappers for Python and C: a fifth of the time.
        options: dict[str, Any] = {"no_cpython_wrapper": each is not function, "no_cfunc_wrapper": True}
        options["_nrt"] = counted or each is function
        jitted[each] = numba.njit(copy, nogil=True, **options)
    for each, names in calls.items():
        jitted[each].py_func.__globals__.update({name: jitted[called] for name, called in names.items()})
    with contextlib.suppress(RuntimeError):  # no folder can be written
        jitted[function].enable_caching()
    result: Callable[..., Any] = jitted[function]
    return result
