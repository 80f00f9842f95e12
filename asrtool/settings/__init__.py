"""All settings: dataclasses, TOML files, registry, generated pages.

- schema: building blocks; registry: components by name
- data, lang, models, train, distributed, launch, decode: one section a file
- config: all sections together
- toml_files, values: reading files and `--set`; removed: settings of earlier versions
- documentation, settings_page: what is printed of them
"""
