"""Packaging of asrtool; tool settings are in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

# asrtool/local and asrtool/utils are links to the folders at the top, so that no wheel holds packages of such names.
PACKAGES = find_packages(include=["asrtool", "asrtool.*"])


# GPL-3: speaks the mini corpus.
MINI = ["espeakng-loader>=0.2.4"]
# BSD: brings the CMU Pronouncing Dictionary, for tokenizer.unit = "phone".
PHONES = ["pocketsphinx>=5.0.1"]

setup(
    name="asrtool",
    version="1.0.0",
    description="Staged speech-recognition recipes for conversational telephone speech",
    long_description=Path("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE", "NOTICE"],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in (10, 11, 12, 13)),
        "Topic :: Multimedia :: Sound/Audio :: Speech",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    python_requires=">=3.10",
    packages=[*PACKAGES, "asrtool.recipes"],
    # In the checkout recipes lie at the top. What runs and sites leave there (exp, paths.toml) stays out of a wheel.
    package_dir={"asrtool.recipes": "recipes"},
    package_data={
        "asrtool.recipes": ["*/recipe.py", "*/conf/*.toml", "*/conf/*/*.toml"],
        "asrtool": ["py.typed"],
        "asrtool.predict.simulate": ["scenarios/*.toml"],
    },
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
        "pillow>=10",  # which matplotlib needs as well
        "jinja2>=3.1",  # which torch needs as well
        "pyyaml>=5.3",  # which lhotse needs as well
        "lhotse>=1.33,<2",
        "lilcom>=1.8",
        # lhotse imports these two without declaring them; scipy also filters.
        "urllib3>=1.26",
        "scipy>=1.10",
        # 0.13 sets the bit rate of a codec.
        "soundfile>=0.13",
        "threadpoolctl>=3.1",
        # Compiles the prefix beam, and the events of large simulations.
        "numba>=0.61",
        "desphere>=0.1.1",
        # Weights in a bundle.
        "safetensors>=0.4",
        "sentencepiece>=0.2",
        "kaldifst>=1.8",
        "kaldi-decoder>=0.3",
    ],
    extras_require={
        "dev": [
            *MINI,
            *PHONES,
            "pytest>=8",
            "pytest-xdist>=3.5",
            "pytest-timeout>=2.3",
            "hypothesis>=6.100",
            "kaldilm>=1.15",
            "ruff>=0.6",
            "mypy>=1.11",
            # tests/recipe/test_wheel.py: it makes wheels by itself, with the licences in the folder of PEP 639.
            "setuptools>=77",
            # As of "slurm", for its tests.
            "dask-jobqueue>=0.9",
            # As of "kubernetes", for its tests, and models of what Kubeflow Trainer accepts.
            "kubernetes>=31",
            "kubeflow-trainer-api>=2.3",
            # As of "s3", for its tests; with the two that its server needs and moto[s3] does not bring.
            "boto3>=1.35",
            "moto[s3]>=5",
            "flask>=3",
            "flask-cors>=4",
            # As of "onnx", for its tests, and sherpa-onnx, which reads its files.
            "onnx>=1.17",
            "onnxruntime>=1.20",
            "sherpa-onnx>=1.12",
            # As of "parquet", for its tests.
            "pyarrow>=15",
            # make docs
            "sphinx>=8",
            "myst-parser>=4",
            "furo>=2024.8",
            "sphinx-click>=6",
            # examples/first_hour.ipynb, in tests.
            "nbclient>=0.10",
            "ipykernel>=6.29",
        ],
        "mini": MINI,
        "phones": PHONES,
        # Audio and features at s3://BUCKET/KEY; http:// and https:// need nothing.
        "s3": ["boto3>=1.35"],
        # Features and decoding by the workers of a cluster: features.executor, decode.executor = "dask:ADDRESS".
        "dask": ["distributed>=2025.1"],
        # The same by jobs of Slurm: launch.slurm.workers.
        "slurm": ["dask-jobqueue>=0.9"],
        # Trainings as TrainJobs: asrtool train --launch kubernetes.
        "kubernetes": ["kubernetes>=31"],
        # asrtool export --onnx, and asrtool transcribe without torch.
        "onnx": ["onnx>=1.17", "onnxruntime>=1.20"],
        # Your own data with audio in columns of Parquet or Arrow files.
        "parquet": ["pyarrow>=15"],
        # Packages that benchmarks/dist.py compares the strategies with.
        "bench": ["decent-dp==0.2.3", "hivemind==1.1.12"],
    },
)
