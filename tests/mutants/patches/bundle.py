"""Slips in asrtool/bundle."""

from . import Patch

PATCHES = (
    Patch(
        "damaged-member-taken",
        "asrtool/bundle/archive.py",
        "        if found != self.files[name]:\n",
        "        if found.num_bytes != self.files[name].num_bytes:\n",
        ("tests/unit/bundle/test_archive.py",),
    ),
    Patch(
        "bundle-unpacks-anywhere",
        "asrtool/bundle/archive.py",
        'path.is_absolute() or ".." in path.parts or ',
        "",
        ("tests/unit/bundle/test_archive.py",),
    ),
    Patch(
        "worst-method-is-the-best",
        "asrtool/bundle/trained.py",
        "        return min(tuned, key=lambda name: errors[name], default=known[0])\n",
        "        return max(tuned, key=lambda name: errors[name], default=known[0])\n",
        ("tests/unit/bundle/test_bundle.py",),
    ),
)
