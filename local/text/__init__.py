"""Text of corpora to normalised text.

- text_rules: mark-up; numbers: spoken forms; references: stm and glm
- own_text: custom data, and text for language models
"""
