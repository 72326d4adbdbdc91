"""The one command `bitedge`: a table of verbs, each a module that imports its room only when it is called."""
