"""Text of corpora to normalised text.

- text_rules: mark-up; numbers: spoken forms; own_text: custom data
- extra_text: text for language models; references: stm and glm
"""
