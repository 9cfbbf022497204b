"""Commands that open a screen: one file each, imported only when it is called."""
