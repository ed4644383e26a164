"""From a definition to a compiled stream table with its capture: operators, types, templates, mirrors."""
