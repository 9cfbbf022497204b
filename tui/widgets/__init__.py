"""Small reusable pieces of the screen."""
